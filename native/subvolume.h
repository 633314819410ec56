/* btrfs subvolumes: on that filesystem a tree of any size is cloned in one step. */
#ifndef WSRT_SUBVOLUME_H
#define WSRT_SUBVOLUME_H

#include "error.h"

/* Create the empty subvolume NAME in PARENT_FD; EOPNOTSUPP on other filesystems. */
int wsrt_create_subvolume(int parent_fd, const char *name, struct wsrt_error *err);

/* Snapshot the subvolume SOURCE_FD as the writable subvolume NAME of DEST_PARENT_FD; EINVAL when the source
 * is no subvolume. Subvolumes inside the source become empty directories. */
int wsrt_snapshot_subvolume(int source_fd, int dest_parent_fd, const char *name, struct wsrt_error *err);

#endif
