#include "cgroup/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

enum { TCP_PART = 8 }; /* of the memory limit, on top of it */

/* One call of wsrt_cgroup_limit. */
struct application {
    const struct wsrt_cgroup_mounts *mounts;
    const char *path;
    unsigned unapplied;
    struct wsrt_error *err;
};

static int64_t clamp(int64_t value, int64_t least, int64_t most)
{
    return value < least ? least : value > most ? most : value;
}

static int version_of(const struct application *to, unsigned controller)
{
    const struct wsrt_cgroup_hierarchy *hierarchy = wsrt_cgroup_with(to->mounts, controller);
    return hierarchy == NULL ? 0 : hierarchy->version;
}

static int skip(struct application *to, unsigned limit)
{
    to->unapplied |= limit;
    return 0;
}

/* Write one limit to FILE where CONTROLLER lives. That the host has no such controller or file is noted as
 * unapplied. */
__attribute__((format(printf, 5, 6)))
static int apply(struct application *to, unsigned limit, unsigned controller, const char *file, const char *format, ...)
{
    const struct wsrt_cgroup_hierarchy *hierarchy = wsrt_cgroup_with(to->mounts, controller);
    if (hierarchy == NULL)
        return skip(to, limit);
    char text[96];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (wsrt_cgroup_put(hierarchy, to->path, file, text) == 0)
        return 0;
    if (errno == ENOENT && faccessat(hierarchy->fd, to->path, F_OK, 0) == 0)
        return skip(to, limit);
    return wsrt_fail(to->err, "limit cgroup", "%s/%s/%s to \"%s\"", hierarchy->directory, to->path, file, text);
}

static int limit_memory_v2(struct application *to, const struct wsrt_cgroup_limits *limits)
{
    if (limits->memory_high_bytes >= 0 && apply(to, WSRT_CGROUP_LIMIT_MEMORY_HIGH, WSRT_CGROUP_MEMORY, "memory.high",
                                                "%" PRId64, limits->memory_high_bytes) < 0)
        return -1;
    if (limits->memory_bytes >= 0 && apply(to, WSRT_CGROUP_LIMIT_MEMORY, WSRT_CGROUP_MEMORY, "memory.max",
                                           "%" PRId64, limits->memory_bytes) < 0)
        return -1;
    if (limits->swap_bytes >= 0 && apply(to, WSRT_CGROUP_LIMIT_SWAP, WSRT_CGROUP_MEMORY, "memory.swap.max",
                                         "%" PRId64, limits->swap_bytes) < 0)
        return -1;
    return 0;
}

static int limit_tcp_v1(struct application *to, const struct wsrt_cgroup_hierarchy *memory, int64_t bytes)
{
    const char *file = "memory.kmem.tcp.limit_in_bytes";
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, bytes);
    if (wsrt_cgroup_put(memory, to->path, file, text) == 0 || errno == ENOENT)
        return 0;
    return wsrt_fail(to->err, "limit cgroup", "%s/%s/%s to \"%s\"", memory->directory, to->path, file, text);
}

/* v1 limits memory and swap together (memsw), which may never be less than memory alone: so a memsw of an
 * earlier call is lifted before memory grows. memory.soft_limit_in_bytes is not memory.high: it only says whose
 * pages go first once the whole host is short. */
static int limit_memory_v1(struct application *to, const struct wsrt_cgroup_limits *limits)
{
    const struct wsrt_cgroup_hierarchy *hierarchy = wsrt_cgroup_with(to->mounts, WSRT_CGROUP_MEMORY);
    if (limits->memory_high_bytes >= 0)
        skip(to, WSRT_CGROUP_LIMIT_MEMORY_HIGH);
    if (limits->memory_bytes < 0)
        return limits->swap_bytes >= 0 ? skip(to, WSRT_CGROUP_LIMIT_SWAP) : 0;
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, limits->memory_bytes);
    if (wsrt_cgroup_put(hierarchy, to->path, "memory.limit_in_bytes", text) < 0) {
        wsrt_cgroup_put(hierarchy, to->path, "memory.memsw.limit_in_bytes", "-1");
        if (apply(to, WSRT_CGROUP_LIMIT_MEMORY, WSRT_CGROUP_MEMORY, "memory.limit_in_bytes", "%s", text) < 0)
            return -1;
    }
    /* What TCP buffers is counted apart, and not at all before that has a limit: the host's TCP would run out. */
    if (limits->memory_bytes > 0 && limit_tcp_v1(to, hierarchy, limits->memory_bytes / TCP_PART) < 0)
        return -1;
    if (limits->swap_bytes < 0)
        return 0;
    return apply(to, WSRT_CGROUP_LIMIT_SWAP, WSRT_CGROUP_MEMORY, "memory.memsw.limit_in_bytes", "%" PRId64,
                 limits->memory_bytes + limits->swap_bytes);
}

static int limit_memory(struct application *to, const struct wsrt_cgroup_limits *limits)
{
    /* v2 where there is neither: it notes every wish as unapplied. */
    return version_of(to, WSRT_CGROUP_MEMORY) == 1 ? limit_memory_v1(to, limits) : limit_memory_v2(to, limits);
}

static int limit_cpu(struct application *to, const struct wsrt_cgroup_limits *limits)
{
    int is_v1 = version_of(to, WSRT_CGROUP_CPU) == 1;
    int64_t weight = limits->cpu_weight, quota = limits->cpu_quota_us, period = limits->cpu_period_us;
    if (weight >= 0) {
        /* The factor by which the kernel itself turns a v2 weight into shares: 100 is 1024. */
        int64_t shares = clamp(weight * 1024 / 100, 2, 262144);
        if (apply(to, WSRT_CGROUP_LIMIT_CPU_WEIGHT, WSRT_CGROUP_CPU, is_v1 ? "cpu.shares" : "cpu.weight",
                  "%" PRId64, is_v1 ? shares : weight) < 0)
            return -1;
    }
    if (quota < 0)
        return 0;
    if (is_v1 && period >= 0 && apply(to, WSRT_CGROUP_LIMIT_CPU_QUOTA, WSRT_CGROUP_CPU, "cpu.cfs_period_us",
                                      "%" PRId64, period) < 0)
        return -1;
    if (is_v1 || period < 0)
        return apply(to, WSRT_CGROUP_LIMIT_CPU_QUOTA, WSRT_CGROUP_CPU, is_v1 ? "cpu.cfs_quota_us" : "cpu.max",
                     "%" PRId64, quota);
    return apply(to, WSRT_CGROUP_LIMIT_CPU_QUOTA, WSRT_CGROUP_CPU, "cpu.max", "%" PRId64 " %" PRId64, quota, period);
}

static int limit_io_weight(struct application *to, int64_t weight)
{
    int is_v1 = version_of(to, WSRT_CGROUP_IO) == 1;
    /* bfq's scale ends at 1,000; 100 is the default on both. */
    int64_t bfq_weight = weight <= 100 ? weight : 100 + (weight - 100) * 900 / 9900;
    switch (to->mounts->io_weight_by) {
    case WSRT_CGROUP_IO_WEIGHT_BFQ:
        return apply(to, WSRT_CGROUP_LIMIT_IO_WEIGHT, WSRT_CGROUP_IO, is_v1 ? "blkio.bfq.weight" : "io.bfq.weight",
                     "%" PRId64, bfq_weight);
    case WSRT_CGROUP_IO_WEIGHT_IOCOST:
        return apply(to, WSRT_CGROUP_LIMIT_IO_WEIGHT, WSRT_CGROUP_IO, "io.weight", "default %" PRId64, weight);
    default:
        return skip(to, WSRT_CGROUP_LIMIT_IO_WEIGHT);
    }
}

static int limit_io_rate(struct application *to, unsigned limit, const char *v1_file, const char *v2_key,
                         const struct wsrt_cgroup_limits *limits, int64_t rate)
{
    unsigned major = limits->io_device_major, minor = limits->io_device_minor;
    if (version_of(to, WSRT_CGROUP_IO) == 1)
        return apply(to, limit, WSRT_CGROUP_IO, v1_file, "%u:%u %" PRId64, major, minor, rate);
    return apply(to, limit, WSRT_CGROUP_IO, "io.max", "%u:%u %s=%" PRId64, major, minor, v2_key, rate);
}

static int limit_io(struct application *to, const struct wsrt_cgroup_limits *limits)
{
    if (limits->io_weight >= 0 && limit_io_weight(to, limits->io_weight) < 0)
        return -1;
    if (limits->io_read_bytes_per_s >= 0 &&
        limit_io_rate(to, WSRT_CGROUP_LIMIT_IO_READ, "blkio.throttle.read_bps_device", "rbps", limits,
                      limits->io_read_bytes_per_s) < 0)
        return -1;
    if (limits->io_write_bytes_per_s >= 0 &&
        limit_io_rate(to, WSRT_CGROUP_LIMIT_IO_WRITE, "blkio.throttle.write_bps_device", "wbps", limits,
                      limits->io_write_bytes_per_s) < 0)
        return -1;
    return 0;
}

/* The kernel takes 0 for some of these and means "off" by it, which nobody can want of an instance. */
static int refuse_zero(const struct wsrt_cgroup_limits *limits, struct wsrt_error *err)
{
    const struct {
        const char *name;
        int64_t value;
    } values[] = {
        {"memory_bytes", limits->memory_bytes},
        {"memory_high_bytes", limits->memory_high_bytes},
        {"cpu_weight", limits->cpu_weight},
        {"cpu_quota_us", limits->cpu_quota_us},
        {"cpu_period_us", limits->cpu_period_us},
        {"pids", limits->pids},
        {"io_weight", limits->io_weight},
        {"io_read_bytes_per_s", limits->io_read_bytes_per_s},
        {"io_write_bytes_per_s", limits->io_write_bytes_per_s},
    };
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        if (values[i].value == 0)
            return wsrt_fail_with(err, EINVAL, "limit cgroup", "%s 0 (-1 is \"no limit\")", values[i].name);
    return 0;
}

int wsrt_cgroup_limit(const struct wsrt_cgroup_mounts *mounts, const char *path,
                      const struct wsrt_cgroup_limits *limits, unsigned *unapplied, struct wsrt_error *err)
{
    struct application to = {.mounts = mounts, .path = path, .err = err};
    if (wsrt_cgroup_check_path(path, err) < 0 || refuse_zero(limits, err) < 0)
        return -1;
    if (limit_memory(&to, limits) < 0 || limit_cpu(&to, limits) < 0 || limit_io(&to, limits) < 0)
        return -1;
    if (limits->pids >= 0 &&
        apply(&to, WSRT_CGROUP_LIMIT_PIDS, WSRT_CGROUP_PIDS, "pids.max", "%" PRId64, limits->pids) < 0)
        return -1;
    *unapplied = to.unapplied;
    return 0;
}
