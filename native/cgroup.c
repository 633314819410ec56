#include "cgroup/internal.h"
#include "cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Another thread may take away a parent (its own rollback, gc) between our making it and using it. */
enum { PARENT_ATTEMPTS = 10 };

static const struct {
    unsigned controller;
    const char *name;
} V2_CONTROLLERS[] = {
    {WSRT_CGROUP_MEMORY, "memory"}, {WSRT_CGROUP_CPU, "cpu"}, {WSRT_CGROUP_PIDS, "pids"}, {WSRT_CGROUP_IO, "io"},
};

/* ENABLED is the text of a cgroup.subtree_control: "cpu io memory". */
static int is_enabled(const char *enabled, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = enabled; (at = strstr(at, name)) != NULL; at += length)
        if ((at == enabled || at[-1] == ' ') && strchr(" \n", at[length]) != NULL)
            return 1;
    return 0;
}

/* List in REQUEST ("+cpu +io") the controllers that GROUP could let its children have and does not yet. */
static int missing_controllers(const struct wsrt_cgroup_hierarchy *hierarchy, const char *group, char request[64],
                               struct wsrt_error *err)
{
    char enabled[256];
    if (wsrt_cgroup_get(hierarchy, group, "cgroup.subtree_control", enabled, sizeof enabled) < 0)
        return wsrt_fail(err, "read cgroup.subtree_control", "%s/%s", hierarchy->directory, group);
    request[0] = '\0';
    for (size_t i = 0; i < sizeof V2_CONTROLLERS / sizeof V2_CONTROLLERS[0]; i++)
        if ((hierarchy->controllers & V2_CONTROLLERS[i].controller) != 0 &&
            !is_enabled(enabled, V2_CONTROLLERS[i].name))
            snprintf(request + strlen(request), 64 - strlen(request), "+%s ", V2_CONTROLLERS[i].name);
    return 0;
}

static int enable_controllers(const struct wsrt_cgroup_hierarchy *hierarchy, const char *group,
                              struct wsrt_error *err)
{
    char request[64];
    if (missing_controllers(hierarchy, group, request, err) < 0)
        return -1;
    if (request[0] == '\0' || wsrt_cgroup_put(hierarchy, group, "cgroup.subtree_control", request) == 0)
        return 0;
    const char *reason = errno == EBUSY ? " (processes live in it: move them to a child group first)" : "";
    return wsrt_fail(err, "enable cgroup controllers", "%s/%s%s", hierarchy->directory, group, reason);
}

/* Enable the controllers for the group: in the directory that paths start from and in every parent. A parent
 * can only have enabled what those above it have, so one look at the nearest mostly settles it. */
static int enable_on_the_way(const struct wsrt_cgroup_hierarchy *hierarchy, const char *path, struct wsrt_error *err)
{
    char parent[PATH_MAX], request[64];
    const char *last = strrchr(path, '/');
    snprintf(parent, sizeof parent, "%.*s", last != NULL ? (int)(last - path) : 1, last != NULL ? path : ".");
    if (missing_controllers(hierarchy, parent, request, err) < 0)
        return -1;
    if (request[0] == '\0')
        return 0;
    if (enable_controllers(hierarchy, ".", err) < 0)
        return -1;
    for (const char *slash = strchr(path, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        snprintf(parent, sizeof parent, "%.*s", (int)(slash - path), path);
        if (enable_controllers(hierarchy, parent, err) < 0)
            return -1;
    }
    return 0;
}

/* Make the missing parents and add to N_MADE how many were. */
static int make_parents(const struct wsrt_cgroup_hierarchy *hierarchy, const char *path, int *n_made)
{
    char parent[PATH_MAX];
    for (const char *slash = strchr(path, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        snprintf(parent, sizeof parent, "%.*s", (int)(slash - path), path);
        if (mkdirat(hierarchy->fd, parent, 0755) == 0)
            ++*n_made;
        else if (errno != EEXIST)
            return -1;
    }
    return 0;
}

/* Remove the N deepest parents that there are, as far as nobody else has come to use them. */
static void remove_parents(const struct wsrt_cgroup_hierarchy *hierarchy, const char *path, int n)
{
    char parent[PATH_MAX];
    snprintf(parent, sizeof parent, "%s", path);
    for (char *slash; n > 0 && (slash = strrchr(parent, '/')) != NULL;) {
        *slash = '\0';
        if (unlinkat(hierarchy->fd, parent, AT_REMOVEDIR) == 0 || errno != ENOENT)
            n--;
    }
}

/* Make the group in one hierarchy and say in N_PARENTS how many parents were made for it. On failure this
 * hierarchy is as it was. */
static int make_in(const struct wsrt_cgroup_hierarchy *hierarchy, const char *path, int *n_parents,
                   struct wsrt_error *err)
{
    *n_parents = 0;
    for (int attempt = 0; mkdirat(hierarchy->fd, path, 0755) < 0; attempt++) {
        if (errno != ENOENT || attempt == PARENT_ATTEMPTS || make_parents(hierarchy, path, n_parents) < 0) {
            wsrt_fail(err, "make cgroup", "%s/%s", hierarchy->directory, path);
            remove_parents(hierarchy, path, *n_parents);
            return -1;
        }
    }
    if (hierarchy->version == 2 && hierarchy->controllers != 0 && enable_on_the_way(hierarchy, path, err) < 0) {
        unlinkat(hierarchy->fd, path, AT_REMOVEDIR);
        remove_parents(hierarchy, path, *n_parents);
        return -1;
    }
    return 0;
}

static int refuse_unusable(const struct wsrt_cgroup_mounts *mounts, struct wsrt_error *err)
{
    if (mounts->n_hierarchies == 0)
        return wsrt_fail_with(err, ENODEV, "find a cgroup hierarchy", "/proc/self/mountinfo (none is mounted)");
    for (int i = 0; i < mounts->n_hierarchies; i++)
        if (mounts->hierarchies[i].fd >= 0)
            return 0;
    return wsrt_fail_with(err, mounts->hierarchies[0].code, "find a cgroup that may be written", "%s",
                          mounts->hierarchies[0].directory);
}

int wsrt_cgroup_create(const struct wsrt_cgroup_mounts *mounts, const char *path, struct wsrt_error *err)
{
    int n_parents[7];
    if (wsrt_cgroup_check_path(path, err) < 0 || refuse_unusable(mounts, err) < 0)
        return -1;
    for (int i = 0; i < mounts->n_hierarchies; i++) {
        if (mounts->hierarchies[i].fd < 0 || make_in(&mounts->hierarchies[i], path, &n_parents[i], err) == 0)
            continue;
        while (i-- > 0) {
            if (mounts->hierarchies[i].fd < 0)
                continue;
            unlinkat(mounts->hierarchies[i].fd, path, AT_REMOVEDIR);
            remove_parents(&mounts->hierarchies[i], path, n_parents[i]);
        }
        return -1;
    }
    return 0;
}

static int remove_tree(const struct wsrt_cgroup_hierarchy *hierarchy, const char *path);

static int remove_children(const struct wsrt_cgroup_hierarchy *hierarchy, const char *path)
{
    CLEANUP_DIR DIR *children = wsrt_cgroup_children(hierarchy, path);
    if (children == NULL)
        return errno == ENOENT ? 0 : -1;
    char child[PATH_MAX];
    while (wsrt_cgroup_next_child(children, path, child))
        if (remove_tree(hierarchy, child) < 0)
            return -1;
    return 0;
}

static int remove_tree(const struct wsrt_cgroup_hierarchy *hierarchy, const char *path)
{
    if (unlinkat(hierarchy->fd, path, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 0;
    if (errno != EBUSY || remove_children(hierarchy, path) < 0)
        return -1;
    return unlinkat(hierarchy->fd, path, AT_REMOVEDIR) == 0 || errno == ENOENT ? 0 : -1;
}

int wsrt_cgroup_destroy(const struct wsrt_cgroup_mounts *mounts, const char *path, int timeout_ms,
                        struct wsrt_error *err)
{
    if (wsrt_cgroup_check_path(path, err) < 0)
        return -1;
    int64_t deadline = wsrt_cgroup_now_ms() + timeout_ms;
    for (int i = 0; i < mounts->n_hierarchies; i++) {
        const struct wsrt_cgroup_hierarchy *hierarchy = &mounts->hierarchies[i];
        for (int attempt = 0; hierarchy->fd >= 0 && remove_tree(hierarchy, path) < 0; attempt++) {
            if (errno != EBUSY || wsrt_cgroup_now_ms() >= deadline)
                return wsrt_fail(err, "remove cgroup", "%s/%s", hierarchy->directory, path);
            struct timespec pause = wsrt_cgroup_pause(attempt);
            nanosleep(&pause, NULL);
        }
    }
    return 0;
}

static void close_entry(struct wsrt_cgroup_entry *entry)
{
    cleanup_close(&entry->v2_fd);
    for (int i = 0; i < entry->n_tasks; i++)
        cleanup_close(&entry->tasks_fds[i]);
}

int wsrt_cgroup_open_entry(const struct wsrt_cgroup_mounts *mounts, const char *path, struct wsrt_cgroup_entry *out,
                           struct wsrt_error *err)
{
    *out = (struct wsrt_cgroup_entry){.v2_fd = -1};
    if (wsrt_cgroup_check_path(path, err) < 0)
        return -1;
    for (int i = 0; i < mounts->n_hierarchies; i++) {
        const struct wsrt_cgroup_hierarchy *hierarchy = &mounts->hierarchies[i];
        if (hierarchy->fd < 0)
            continue;
        int fd = hierarchy->version == 2 ? wsrt_cgroup_open(hierarchy, path, "", O_RDONLY | O_DIRECTORY)
                                         : wsrt_cgroup_open(hierarchy, path, "tasks", O_WRONLY);
        if (fd < 0) {
            wsrt_fail(err, "open cgroup", "%s/%s", hierarchy->directory, path);
            close_entry(out);
            return -1;
        }
        if (hierarchy->version == 2)
            out->v2_fd = fd;
        else
            out->tasks_fds[out->n_tasks++] = fd;
    }
    return 0;
}
