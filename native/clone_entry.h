/* Cloning one directory entry: what a single file and a whole tree have in common. */
#ifndef WSRT_CLONE_ENTRY_H
#define WSRT_CLONE_ENTRY_H

#include <stdbool.h>
#include <sys/stat.h>

#include "error.h"

/* One file to be cloned. */
struct clone_entry {
    int source_dir_fd, dest_dir_fd;
    const char *source_name, *dest_name;
    const char *label[3]; /* what errors call it, in parts */
    unsigned flags;
    mode_t umask; /* permission bits that the file creation mask may take away */
    int source_fd; /* -1 for all but regular files */
    struct stat status;
};

/* As wsrt_fail, on the entry's label. */
int wsrt_fail_entry(const struct clone_entry *entry, const char *step, struct wsrt_error *err);

/* Find out what the source is, and open it when it is a regular file. Others are not opened: a device's
 * driver would notice, a fifo would block. The caller closes entry->source_fd, whatever happens. */
int wsrt_examine_entry(struct clone_entry *entry, bool is_regular, struct wsrt_error *err);

/* Clone the examined entry, which is no directory; on failure it is not there. */
int wsrt_clone_entry(const struct clone_entry *entry, struct wsrt_error *err);

/* Give the directory DEST_FD the owner, mode, attributes and time of SOURCE_FD, whose status is known. */
int wsrt_clone_directory_attributes(int source_fd, const struct stat *status, int dest_fd, const char *label,
                                    struct wsrt_error *err);

#endif
