/* Mounts through the new mount API. Every mount made here is detached: it is in no mount table until pid 1 of
 * an instance attaches it in its own mount namespace, and it is gone with its last descriptor. A killed owner
 * therefore leaves no mount behind. */
#ifndef WSRT_MOUNT_H
#define WSRT_MOUNT_H

#include "error.h"

enum wsrt_mount_flags {
    WSRT_MOUNT_READ_ONLY = 1,
    WSRT_MOUNT_NO_DEV = 2,
    WSRT_MOUNT_NO_SUID = 4,
    WSRT_MOUNT_RECURSIVE = 8,
};

/* Clone the mount of PATH below DIR_FD ("" for DIR_FD itself) as a detached mount, noatime. With a user
 * namespace (else -1) it is idmapped: on-disk id N appears, and is written, as the namespace's id N.
 * Returns a mount descriptor. */
int wsrt_mount_clone(int dir_fd, const char *path, int userns_fd, int flags, struct wsrt_error *err);

struct wsrt_overlay {
    const int *lower_fds; /* topmost first; detached mounts or directories */
    int n_lowers;
    int upper_fd;    /* a plain directory, owned by the ids that shall see it as root's */
    int work_fd;     /* an empty directory beside upper */
    int is_volatile; /* never sync: the upper is worthless after a crash of the host */
    int by_path;     /* kernels before 6.15 take no detached layers: attach them in a throw-away mount
                        namespace first and give their names there. Uses each lower mount up, and lowers must
                        be mounts then. */
};

/* Make an overlay of the layers; returns a detached mount's descriptor. */
int wsrt_mount_overlay(const struct wsrt_overlay *layers, struct wsrt_error *err);

#endif
