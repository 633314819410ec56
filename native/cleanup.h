/* Ownership by scope: a descriptor or allocation declared with one of these is released when the scope is
 * left, unless `steal_fd` handed it on. */
#ifndef WSRT_CLEANUP_H
#define WSRT_CLEANUP_H

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_close(int *fd)
{
    if (*fd >= 0) {
        int saved = errno;
        close(*fd);
        errno = saved;
    }
}

static inline void cleanup_free_pointer(void *pointer_to_pointer)
{
    free(*(void **)pointer_to_pointer);
}

static inline void cleanup_closedir(DIR **dir)
{
    if (*dir != NULL)
        closedir(*dir);
}

static inline int steal_fd(int *fd)
{
    int taken = *fd;
    *fd = -1;
    return taken;
}

#define CLEANUP_FD __attribute__((cleanup(cleanup_close)))
#define CLEANUP_FREE __attribute__((cleanup(cleanup_free_pointer)))
#define CLEANUP_DIR __attribute__((cleanup(cleanup_closedir)))

#endif
