/* How the cgroup calls reach their files: internal to native/cgroup*.c, so not among the headers that Python binds. */
#ifndef WSRT_CGROUP_INTERNAL_H
#define WSRT_CGROUP_INTERNAL_H

#include "cgroup.h"

#include <dirent.h>
#include <limits.h>

/* The hierarchy that has CONTROLLER and that we may write, or NULL. */
const struct wsrt_cgroup_hierarchy *wsrt_cgroup_with(const struct wsrt_cgroup_mounts *mounts,
                                                     unsigned controller);

/* The v2 hierarchy if there is one that we may write, or NULL. */
const struct wsrt_cgroup_hierarchy *wsrt_cgroup_v2(const struct wsrt_cgroup_mounts *mounts);

/* Open PATH/FILE of a hierarchy, close-on-exec; FILE "" is the group's directory. */
int wsrt_cgroup_open(const struct wsrt_cgroup_hierarchy *hierarchy, const char *path, const char *file,
                     int flags);

/* Write TEXT to PATH/FILE in one system call: 0 or -1 with errno. */
int wsrt_cgroup_put(const struct wsrt_cgroup_hierarchy *hierarchy, const char *path, const char *file,
                    const char *text);

/* Read PATH/FILE as a string, cut at SIZE - 1 bytes; returns its length or -1 with errno. */
int wsrt_cgroup_get(const struct wsrt_cgroup_hierarchy *hierarchy, const char *path, const char *file,
                    char *text, size_t size);

/* Read what is left of FD likewise. */
int wsrt_cgroup_read(int fd, char *text, size_t size);

/* The number after the line-starting KEY in TEXT ("anon 4096"), -1 when there is no such line. */
int64_t wsrt_cgroup_number(const char *text, const char *key);

/* Open the group for wsrt_cgroup_next_child; NULL with errno. */
DIR *wsrt_cgroup_children(const struct wsrt_cgroup_hierarchy *hierarchy, const char *path);

/* Store in CHILD the path of the next group directly below PATH; 0 when there is none left. */
int wsrt_cgroup_next_child(DIR *children, const char *path, char child[PATH_MAX]);

/* Milliseconds on the monotonic clock. */
int64_t wsrt_cgroup_now_ms(void);

/* How long to wait before looking for the ATTEMPTth time whether the kernel is done: 0.05 ms at first, when
 * most things are, then ever longer, so that a slow one costs few looks. At most 5 ms. */
struct timespec wsrt_cgroup_pause(int attempt);

#endif
