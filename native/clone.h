/* Reflink clones of files and trees: new inodes that share their data with the source until written. */
#ifndef WSRT_CLONE_H
#define WSRT_CLONE_H

#include "error.h"

enum wsrt_clone_flag {
    WSRT_CLONE_COPY = 1, /* copy the data instead of sharing it: laid down sequentially, holes kept */
};

/* Clone the file SOURCE_NAME of SOURCE_DIR_FD as DEST_NAME of DEST_DIR_FD, which must not exist, with its
 * owner, mode, modification time and extended attributes. Regular files, symlinks, fifos, sockets, devices.
 * Without WSRT_CLONE_COPY a filesystem that cannot share data is an error (EOPNOTSUPP, EXDEV). */
int wsrt_clone_file(int source_dir_fd, const char *source_name, int dest_dir_fd, const char *dest_name,
                    unsigned flags, struct wsrt_error *err);

/* Clone the tree SOURCE_FD as NAME (a single component) of DEST_PARENT_FD, which must not exist, with hard
 * links as hard links, by N_THREADS threads, the caller being one of them. Nobody may write to the source
 * meanwhile. Mounts inside the source are refused (EXDEV). On failure nothing remains. */
int wsrt_clone_tree(int source_fd, int dest_parent_fd, const char *name, int n_threads, unsigned flags,
                    struct wsrt_error *err);

#endif
