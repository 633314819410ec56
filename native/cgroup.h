/* Control groups on pure v2, hybrid and pure v1 hosts behind one set of calls.
 *
 * A group is named by a relative path ("webserv_rt/OWNER/INSTANCE") that stands for one directory in every
 * hierarchy used. Which hierarchies those are is found once, by wsrt_cgroup_discover; nothing else is kept
 * between calls, so that a thousand groups cost no descriptors. All calls may be made from several threads. */
#ifndef WSRT_CGROUP_H
#define WSRT_CGROUP_H

#include "error.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum wsrt_cgroup_layout {
    WSRT_CGROUP_NONE,   /* no hierarchy with a use for us is mounted */
    WSRT_CGROUP_V2,     /* the unified hierarchy alone */
    WSRT_CGROUP_HYBRID, /* controllers in v1 hierarchies, the unified one beside them */
    WSRT_CGROUP_V1
};

enum wsrt_cgroup_controller {
    WSRT_CGROUP_MEMORY = 1,
    WSRT_CGROUP_CPU = 2,
    WSRT_CGROUP_CPUACCT = 4, /* v1 only: v2 counts cpu time in every group */
    WSRT_CGROUP_PIDS = 8,
    WSRT_CGROUP_IO = 16,     /* "blkio" in v1 */
    WSRT_CGROUP_FREEZER = 32 /* v1 only: v2 freezes any group */
};

struct wsrt_cgroup_hierarchy {
    int version;           /* 1 or 2 */
    unsigned controllers;  /* of enum wsrt_cgroup_controller */
    int fd;                /* the directory that group paths start from; -1: may not be used */
    int code;              /* then the errno that says why no directory on our way down may be written */
    char directory[512];   /* the same directory by name, for messages */
};

/* What on this host heeds io weights: nothing, unless iocost is switched on or a disk is scheduled by bfq. */
enum wsrt_cgroup_io_weight {
    WSRT_CGROUP_IO_WEIGHT_IGNORED,
    WSRT_CGROUP_IO_WEIGHT_IOCOST,
    WSRT_CGROUP_IO_WEIGHT_BFQ
};

struct wsrt_cgroup_mounts {
    enum wsrt_cgroup_layout layout;
    enum wsrt_cgroup_io_weight io_weight_by;
    int n_hierarchies;
    struct wsrt_cgroup_hierarchy hierarchies[7]; /* the v2 one first */
};

/* Find the mounted hierarchies. In each, groups start from the highest directory between the mount point
 * and our own group that we may write: the root for root, the delegated subtree for a delegated service. A
 * hierarchy in which there is none (fd -1) is left out by all other calls, and its limits count as not
 * offered. A host without cgroups is no error: the layout is WSRT_CGROUP_NONE. OUT is to be closed. */
int wsrt_cgroup_discover(struct wsrt_cgroup_mounts *out, struct wsrt_error *err);
void wsrt_cgroup_close(struct wsrt_cgroup_mounts *mounts);

/* Refuse a group's path that is empty, absolute, or has an empty, "." or ".." part. */
int wsrt_cgroup_check_path(const char *path, struct wsrt_error *err);

/* Make the group in every hierarchy, parents included, with the v2 controllers enabled on the way: all or
 * nothing. EEXIST when it is there in any of them. */
int wsrt_cgroup_create(const struct wsrt_cgroup_mounts *mounts, const char *path, struct wsrt_error *err);

/* Remove the group and the groups below it from every hierarchy, wherever they exist. A process that is
 * still exiting holds its group (EBUSY) for some time: tried again until TIMEOUT_MS have passed. */
int wsrt_cgroup_destroy(const struct wsrt_cgroup_mounts *mounts, const char *path, int timeout_ms,
                        struct wsrt_error *err);

/* The ways into a group.
 *
 * The new process is born in the v2 group by clone3(CLONE_INTO_CGROUP), and writes "0" to each `tasks` file
 * itself, while it is still single-threaded, before it forks and before it unshares its cgroup namespace (whose
 * root is the group of that moment). Why `tasks` and why from inside: a write of somebody's pid, or any write to
 * cgroup.procs, takes the kernel's cgroup_threadgroup_rwsem for writing, which waits for an RCU grace period:
 * 11-14 ms measured on Linux 6.18. The kernel leaves that lock out for a thread that moves itself alone,
 * `if (pid || threadgroup)`: 15 us. */
struct wsrt_cgroup_entry {
    int v2_fd; /* -1 on a pure v1 host */
    int n_tasks;
    int tasks_fds[7];
};

/* The descriptors in OUT are the caller's to close. */
int wsrt_cgroup_open_entry(const struct wsrt_cgroup_mounts *mounts, const char *path, struct wsrt_cgroup_entry *out,
                           struct wsrt_error *err);

/* -1 leaves a limit as it is (a new group has none); 0 is meant only for swap_bytes ("no swap"). A weight has
 * the v2 scale, 1..10000 with 100 for everybody else. The io rates hold for one whole block device. */
struct wsrt_cgroup_limits {
    int64_t memory_bytes;
    int64_t memory_high_bytes;
    int64_t swap_bytes;
    int64_t cpu_weight;
    int64_t cpu_quota_us;
    int64_t cpu_period_us; /* of the quota; 100,000 in a new group */
    int64_t pids;
    int64_t io_weight;
    int64_t io_read_bytes_per_s;
    int64_t io_write_bytes_per_s;
    unsigned io_device_major;
    unsigned io_device_minor;
};

enum wsrt_cgroup_limit {
    WSRT_CGROUP_LIMIT_MEMORY = 1,
    WSRT_CGROUP_LIMIT_MEMORY_HIGH = 2,
    WSRT_CGROUP_LIMIT_SWAP = 4,
    WSRT_CGROUP_LIMIT_CPU_WEIGHT = 8,
    WSRT_CGROUP_LIMIT_CPU_QUOTA = 16,
    WSRT_CGROUP_LIMIT_PIDS = 32,
    WSRT_CGROUP_LIMIT_IO_WEIGHT = 64,
    WSRT_CGROUP_LIMIT_IO_READ = 128,
    WSRT_CGROUP_LIMIT_IO_WRITE = 256
};

/* Apply what the host's hierarchies offer of LIMITS; what they lack is returned in UNAPPLIED (of enum
 * wsrt_cgroup_limit). A value that the kernel refuses is an error. */
int wsrt_cgroup_limit(const struct wsrt_cgroup_mounts *mounts, const char *path,
                      const struct wsrt_cgroup_limits *limits, unsigned *unapplied, struct wsrt_error *err);

/* Stop (FROZEN 1) or continue (0) every process of the group and below, and wait until it is so: ETIMEDOUT
 * after TIMEOUT_MS, with the request left standing. */
int wsrt_cgroup_freeze(const struct wsrt_cgroup_mounts *mounts, const char *path, int frozen, int timeout_ms,
                       struct wsrt_error *err);

/* Send SIGKILL to every process of the group and below; no fork escapes it. Does not wait for their end. */
int wsrt_cgroup_kill(const struct wsrt_cgroup_mounts *mounts, const char *path, int timeout_ms,
                     struct wsrt_error *err);

/* Wait until no process is left in the group or below; ETIMEDOUT after TIMEOUT_MS. */
int wsrt_cgroup_wait_empty(const struct wsrt_cgroup_mounts *mounts, const char *path, int timeout_ms,
                           struct wsrt_error *err);

/* Store up to CAPACITY pids of the group and below in PIDS; returns how many there are. */
int wsrt_cgroup_pids(const struct wsrt_cgroup_mounts *mounts, const char *path, pid_t *pids, int capacity,
                     struct wsrt_error *err);

/* -1: this host does not count it. */
struct wsrt_cgroup_statistics {
    int64_t memory_bytes;
    int64_t memory_peak_bytes;
    int64_t memory_anon_bytes;
    int64_t memory_file_bytes; /* page cache, tmpfs and shared memory included */
    int64_t memory_kernel_bytes;
    int64_t oom_kills;
    int64_t cpu_us;
    int64_t cpu_user_us;
    int64_t cpu_system_us;
    int64_t cpu_throttled_us;
    int64_t pids;
    int64_t io_read_bytes;
    int64_t io_written_bytes;
};

int wsrt_cgroup_statistics(const struct wsrt_cgroup_mounts *mounts, const char *path,
                           struct wsrt_cgroup_statistics *out, struct wsrt_error *err);

#endif
