#include "cgroup/internal.h"
#include "cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* One round of freezing, killing and thawing by hand. */
enum { FREEZE_ROUND_MS = 50 };

struct pid_list {
    pid_t *pids;
    size_t length, capacity;
};

static void pid_list_free(struct pid_list *list)
{
    free(list->pids);
}

#define CLEANUP_PID_LIST __attribute__((cleanup(pid_list_free)))

static int pid_list_add(struct pid_list *list, pid_t pid)
{
    if (list->length == list->capacity) {
        size_t capacity = list->capacity == 0 ? 64 : list->capacity * 2;
        pid_t *pids = realloc(list->pids, capacity * sizeof *pids);
        if (pids == NULL)
            return -1;
        list->pids = pids;
        list->capacity = capacity;
    }
    list->pids[list->length++] = pid;
    return 0;
}

/* Add the processes of the group itself. */
static int collect_own(const struct wsrt_cgroup_hierarchy *hierarchy, const char *path, struct pid_list *list)
{
    int fd = wsrt_cgroup_open(hierarchy, path, "cgroup.procs", O_RDONLY);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
    if (file == NULL) {
        cleanup_close(&fd);
        return -1;
    }
    int result = 0;
    pid_t pid;
    while (result == 0 && fscanf(file, "%d", &pid) == 1)
        if (pid > 0) /* 0 is one that our pid namespace does not see; to kill(2) it would mean ourselves */
            result = pid_list_add(list, pid);
    if (ferror(file))
        result = -1;
    int saved = errno;
    fclose(file);
    errno = saved;
    return result;
}

static int collect(const struct wsrt_cgroup_hierarchy *hierarchy, const char *path, struct pid_list *list)
{
    if (collect_own(hierarchy, path, list) < 0)
        return -1;
    CLEANUP_DIR DIR *children = wsrt_cgroup_children(hierarchy, path);
    char child[PATH_MAX];
    if (children == NULL)
        return -1;
    while (wsrt_cgroup_next_child(children, path, child))
        /* A group below may go while we look (ENODEV: between open and read). */
        if (collect(hierarchy, child, list) < 0 && errno != ENOENT && errno != ENODEV)
            return -1;
    return 0;
}

/* List the processes of the group and below. Every member is in all hierarchies, so any one will do. */
static int list_pids(const struct wsrt_cgroup_mounts *mounts, const char *path, struct pid_list *list,
                     struct wsrt_error *err)
{
    const struct wsrt_cgroup_hierarchy *hierarchy = wsrt_cgroup_v2(mounts);
    if (hierarchy == NULL)
        hierarchy = wsrt_cgroup_with(mounts, ~0U);
    if (hierarchy == NULL)
        return wsrt_fail_with(err, ENODEV, "list processes of cgroup", "%s (no hierarchy may be used)", path);
    if (collect(hierarchy, path, list) < 0)
        return wsrt_fail(err, "list processes of cgroup", "%s/%s", hierarchy->directory, path);
    return 0;
}

int wsrt_cgroup_pids(const struct wsrt_cgroup_mounts *mounts, const char *path, pid_t *pids, int capacity,
                     struct wsrt_error *err)
{
    CLEANUP_PID_LIST struct pid_list list = {0};
    if (wsrt_cgroup_check_path(path, err) < 0 || list_pids(mounts, path, &list, err) < 0)
        return -1;
    for (size_t i = 0; i < list.length && i < (size_t)capacity; i++)
        pids[i] = list.pids[i];
    return (int)list.length;
}

/* Wait until KEY ("frozen", "populated") in the v2 group's cgroup.events is WANTED. The kernel holds a second
 * notification of one file back until 10 ms after the first (CGROUP_FILE_NOTIFY_MIN_INTV), longer than an
 * instance may live: so the file is also looked at in between. */
static int wait_event(const struct wsrt_cgroup_hierarchy *hierarchy, const char *path, const char *key, int wanted,
                      int timeout_ms, struct wsrt_error *err)
{
    int64_t deadline = wsrt_cgroup_now_ms() + timeout_ms;
    CLEANUP_FD int fd = wsrt_cgroup_open(hierarchy, path, "cgroup.events", O_RDONLY);
    for (int attempt = 0;; attempt++) {
        char events[256];
        if (fd < 0 || lseek(fd, 0, SEEK_SET) < 0 || wsrt_cgroup_read(fd, events, sizeof events) < 0)
            return wsrt_fail(err, "read cgroup.events", "%s/%s", hierarchy->directory, path);
        if (wsrt_cgroup_number(events, key) == wanted)
            return 0;
        if (wsrt_cgroup_now_ms() >= deadline)
            return wsrt_fail_with(err, ETIMEDOUT, "wait for cgroup", "%s/%s: %s %d", hierarchy->directory, path, key,
                                  wanted);
        struct timespec pause = wsrt_cgroup_pause(attempt);
        struct pollfd poll_events = {.fd = fd, .events = POLLPRI};
        ppoll(&poll_events, 1, &pause, NULL);
    }
}

/* Bring the v1 freezer to STATE. It notifies nobody, and a task that missed the request leaves it at FREEZING
 * for good: so the request is made again before each look (freezer-subsystem.txt leaves that to user space). */
static int set_freezer(const struct wsrt_cgroup_hierarchy *freezer, const char *path, const char *wanted,
                       int timeout_ms, struct wsrt_error *err)
{
    int64_t deadline = wsrt_cgroup_now_ms() + timeout_ms;
    for (int attempt = 0;; attempt++) {
        char state[32];
        if (wsrt_cgroup_put(freezer, path, "freezer.state", wanted) < 0 ||
            wsrt_cgroup_get(freezer, path, "freezer.state", state, sizeof state) < 0)
            return wsrt_fail(err, "set freezer.state", "%s/%s: %s", freezer->directory, path, wanted);
        if (strncmp(state, wanted, strlen(wanted)) == 0)
            return 0;
        if (wsrt_cgroup_now_ms() >= deadline)
            return wsrt_fail_with(err, ETIMEDOUT, "wait for cgroup", "%s/%s: %s", freezer->directory, path, wanted);
        struct timespec pause = wsrt_cgroup_pause(attempt);
        nanosleep(&pause, NULL);
    }
}

int wsrt_cgroup_freeze(const struct wsrt_cgroup_mounts *mounts, const char *path, int frozen, int timeout_ms,
                       struct wsrt_error *err)
{
    const char *step = frozen ? "freeze cgroup" : "thaw cgroup";
    if (wsrt_cgroup_check_path(path, err) < 0)
        return -1;
    const struct wsrt_cgroup_hierarchy *v2 = wsrt_cgroup_v2(mounts);
    if (v2 != NULL) {
        if (wsrt_cgroup_put(v2, path, "cgroup.freeze", frozen ? "1" : "0") < 0)
            return wsrt_fail(err, step, "%s/%s", v2->directory, path);
        return wait_event(v2, path, "frozen", frozen, timeout_ms, err);
    }
    const struct wsrt_cgroup_hierarchy *freezer = wsrt_cgroup_with(mounts, WSRT_CGROUP_FREEZER);
    if (freezer == NULL)
        return wsrt_fail_with(err, ENODEV, step, "%s (neither cgroup v2 nor the v1 freezer may be used)", path);
    return set_freezer(freezer, path, frozen ? "FROZEN" : "THAWED", timeout_ms, err);
}

/* Send SIGKILL to each process. That a pid read here is another process by the time it is killed would take a
 * turn of the whole pid space (pids are given out in a cycle) within microseconds. Returns how many there were. */
static int signal_each(const struct wsrt_cgroup_mounts *mounts, const char *path, struct wsrt_error *err)
{
    CLEANUP_PID_LIST struct pid_list list = {0};
    if (list_pids(mounts, path, &list, err) < 0)
        return -1;
    for (size_t i = 0; i < list.length; i++)
        if (kill(list.pids[i], SIGKILL) < 0 && errno != ESRCH)
            return wsrt_fail(err, "kill process of cgroup", "%s: pid %d", path, (int)list.pids[i]);
    return (int)list.length;
}

/* A group below that was frozen by itself stays so, and on v1 a frozen process does not die. */
static int thaw_below(const struct wsrt_cgroup_hierarchy *freezer, const char *path, struct wsrt_error *err)
{
    CLEANUP_DIR DIR *children = wsrt_cgroup_children(freezer, path);
    char child[PATH_MAX];
    if (children == NULL)
        return errno == ENOENT ? 0 : wsrt_fail(err, "list cgroups below", "%s/%s", freezer->directory, path);
    while (wsrt_cgroup_next_child(children, path, child)) {
        if (wsrt_cgroup_put(freezer, child, "freezer.state", "THAWED") < 0 && errno != ENOENT && errno != ENODEV)
            return wsrt_fail(err, "thaw cgroup", "%s/%s", freezer->directory, child);
        if (thaw_below(freezer, child, err) < 0)
            return -1;
    }
    return 0;
}

/* For v1, and for kernels before 5.14. All are frozen meanwhile, or a fork bomb forks faster than it is killed;
 * one that cannot be frozen yet (uninterruptible sleep) is met again in the next round. */
static int kill_by_hand(const struct wsrt_cgroup_mounts *mounts, const char *path, int timeout_ms,
                        struct wsrt_error *err)
{
    int64_t deadline = wsrt_cgroup_now_ms() + timeout_ms;
    const struct wsrt_cgroup_hierarchy *freezer =
        wsrt_cgroup_v2(mounts) == NULL ? wsrt_cgroup_with(mounts, WSRT_CGROUP_FREEZER) : NULL;
    for (;;) {
        int is_frozen = wsrt_cgroup_freeze(mounts, path, 1, FREEZE_ROUND_MS, NULL) == 0;
        int n_signalled = signal_each(mounts, path, err);
        int is_thawed = wsrt_cgroup_freeze(mounts, path, 0, FREEZE_ROUND_MS, NULL) == 0;
        if (n_signalled < 0 || (freezer != NULL && thaw_below(freezer, path, err) < 0))
            return -1;
        if ((is_frozen && is_thawed) || n_signalled == 0)
            return 0;
        if (wsrt_cgroup_now_ms() >= deadline)
            return wsrt_fail_with(err, ETIMEDOUT, "kill cgroup", "%s (%d processes left)", path, n_signalled);
    }
}

int wsrt_cgroup_kill(const struct wsrt_cgroup_mounts *mounts, const char *path, int timeout_ms,
                     struct wsrt_error *err)
{
    if (wsrt_cgroup_check_path(path, err) < 0)
        return -1;
    const struct wsrt_cgroup_hierarchy *v2 = wsrt_cgroup_v2(mounts);
    if (v2 == NULL)
        return kill_by_hand(mounts, path, timeout_ms, err);
    if (wsrt_cgroup_put(v2, path, "cgroup.kill", "1") == 0)
        return 0;
    if (errno == ENOENT && faccessat(v2->fd, path, F_OK, 0) == 0)
        return kill_by_hand(mounts, path, timeout_ms, err);
    return wsrt_fail(err, "kill cgroup", "%s/%s", v2->directory, path);
}

static int wait_listed(const struct wsrt_cgroup_mounts *mounts, const char *path, int timeout_ms,
                       struct wsrt_error *err)
{
    int64_t deadline = wsrt_cgroup_now_ms() + timeout_ms;
    for (int attempt = 0;; attempt++) {
        CLEANUP_PID_LIST struct pid_list list = {0};
        if (list_pids(mounts, path, &list, err) < 0)
            return -1;
        if (list.length == 0)
            return 0;
        if (wsrt_cgroup_now_ms() >= deadline)
            return wsrt_fail_with(err, ETIMEDOUT, "wait for cgroup", "%s: %zu processes left", path, list.length);
        struct timespec pause = wsrt_cgroup_pause(attempt);
        nanosleep(&pause, NULL);
    }
}

int wsrt_cgroup_wait_empty(const struct wsrt_cgroup_mounts *mounts, const char *path, int timeout_ms,
                           struct wsrt_error *err)
{
    if (wsrt_cgroup_check_path(path, err) < 0)
        return -1;
    const struct wsrt_cgroup_hierarchy *v2 = wsrt_cgroup_v2(mounts);
    return v2 != NULL ? wait_event(v2, path, "populated", 0, timeout_ms, err)
                      : wait_listed(mounts, path, timeout_ms, err);
}
