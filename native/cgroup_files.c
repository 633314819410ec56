#include "cgroup/internal.h"
#include "cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const struct wsrt_cgroup_hierarchy *wsrt_cgroup_with(const struct wsrt_cgroup_mounts *mounts,
                                                     unsigned controller)
{
    for (int i = 0; i < mounts->n_hierarchies; i++)
        if (mounts->hierarchies[i].fd >= 0 && (mounts->hierarchies[i].controllers & controller) != 0)
            return &mounts->hierarchies[i];
    return NULL;
}

const struct wsrt_cgroup_hierarchy *wsrt_cgroup_v2(const struct wsrt_cgroup_mounts *mounts)
{
    const struct wsrt_cgroup_hierarchy *first = &mounts->hierarchies[0];
    return mounts->n_hierarchies > 0 && first->version == 2 && first->fd >= 0 ? first : NULL;
}

int wsrt_cgroup_check_path(const char *path, struct wsrt_error *err)
{
    const char *part = path;
    for (;;) {
        size_t length = strcspn(part, "/");
        int dots = (length == 1 && part[0] == '.') || (length == 2 && part[0] == '.' && part[1] == '.');
        if (length == 0 || dots)
            return wsrt_fail_with(err, EINVAL, "name a cgroup", "\"%s\" (an empty, \".\" or \"..\" part)", path);
        if (part[length] == '\0')
            return 0;
        part += length + 1;
    }
}

int wsrt_cgroup_open(const struct wsrt_cgroup_hierarchy *hierarchy, const char *path, const char *file, int flags)
{
    char name[PATH_MAX];
    if (snprintf(name, sizeof name, "%s/%s", path, file) >= (int)sizeof name) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return openat(hierarchy->fd, name, flags | O_CLOEXEC);
}

int wsrt_cgroup_put(const struct wsrt_cgroup_hierarchy *hierarchy, const char *path, const char *file,
                    const char *text)
{
    CLEANUP_FD int fd = wsrt_cgroup_open(hierarchy, path, file, O_WRONLY);
    if (fd < 0)
        return -1;
    return write(fd, text, strlen(text)) < 0 ? -1 : 0;
}

int wsrt_cgroup_get(const struct wsrt_cgroup_hierarchy *hierarchy, const char *path, const char *file,
                    char *text, size_t size)
{
    CLEANUP_FD int fd = wsrt_cgroup_open(hierarchy, path, file, O_RDONLY);
    return fd < 0 ? -1 : wsrt_cgroup_read(fd, text, size);
}

int wsrt_cgroup_read(int fd, char *text, size_t size)
{
    size_t length = 0;
    for (;;) {
        ssize_t n = read(fd, text + length, size - 1 - length);
        if (n < 0 && errno != EINTR)
            return -1;
        if (n == 0)
            break;
        length += n > 0 ? (size_t)n : 0;
    }
    text[length] = '\0';
    return (int)length;
}

int64_t wsrt_cgroup_number(const char *text, const char *key)
{
    size_t length = strlen(key);
    for (const char *line = text; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) == 0 && line[length] == ' ')
            return strtoll(line + length + 1, NULL, 10);
    }
    return -1;
}

DIR *wsrt_cgroup_children(const struct wsrt_cgroup_hierarchy *hierarchy, const char *path)
{
    CLEANUP_FD int fd = wsrt_cgroup_open(hierarchy, path, "", O_RDONLY | O_DIRECTORY);
    DIR *children = fd < 0 ? NULL : fdopendir(fd);
    if (children != NULL)
        steal_fd(&fd);
    return children;
}

int wsrt_cgroup_next_child(DIR *children, const char *path, char child[PATH_MAX])
{
    const struct dirent *entry;
    while ((entry = readdir(children)) != NULL) {
        int is_dots = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
        if (entry->d_type == DT_DIR && !is_dots && snprintf(child, PATH_MAX, "%s/%s", path, entry->d_name) < PATH_MAX)
            return 1;
    }
    return 0;
}

int64_t wsrt_cgroup_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

struct timespec wsrt_cgroup_pause(int attempt)
{
    long pause_us = attempt < 100 ? 50L * (attempt + 1) : 5000;
    return (struct timespec){.tv_nsec = pause_us * 1000};
}
