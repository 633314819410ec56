/* Removal of whole trees that a hostile process may have laid out. */
#ifndef WSRT_REMOVE_H
#define WSRT_REMOVE_H

#include "error.h"

/* Remove NAME (a single component) in PARENT_FD and everything below it, whatever its kind; a NAME that is
 * not there is a success. Follows no symlink and enters no mount (EXDEV names it), holds at most 32
 * descriptors however deep the tree is. Stops at the first failure; may be called again. */
int wsrt_remove_tree(int parent_fd, const char *name, struct wsrt_error *err);

#endif
