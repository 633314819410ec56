/* Opening what a name inside a given directory stands for, and nothing outside of it. */
#ifndef WSRT_BENEATH_H
#define WSRT_BENEATH_H

#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* Open the directory PATH below DIRFD, following no symlink and crossing no mount (EXDEV). */
static inline int open_directory_beneath(int dirfd, const char *path)
{
    struct open_how how = {
        .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
    };
    return (int)syscall(SYS_openat2, dirfd, path, &how, sizeof how);
}

static inline bool is_single_name(const char *name)
{
    return *name != '\0' && strlen(name) <= NAME_MAX && strchr(name, '/') == NULL && strcmp(name, ".") != 0
           && strcmp(name, "..") != 0;
}

#endif
