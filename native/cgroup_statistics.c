#include "cgroup/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* memory.stat and io.stat have some dozens of short lines. */
enum { TEXT_SIZE = 16384 };

/* Read a file; -1 and the empty text, in which nothing is found, when there is no such file. Any other failure is
 * kept in FAILURE as well: what could not be read must not pass for what the host does not count. */
static int read_text(const struct wsrt_cgroup_hierarchy *hierarchy, const char *path, const char *file, char *text,
                     size_t size, struct wsrt_error *failure)
{
    if (wsrt_cgroup_get(hierarchy, path, file, text, size) >= 0)
        return 0;
    text[0] = '\0';
    if (errno != ENOENT && errno != EOPNOTSUPP)
        wsrt_fail(failure, "read statistics of cgroup", "%s/%s/%s", hierarchy->directory, path, file);
    return -1;
}

/* The whole of a file as one number; -1 when there is no such file. */
static int64_t number_in(const struct wsrt_cgroup_hierarchy *hierarchy, const char *path, const char *file,
                         struct wsrt_error *failure)
{
    char text[64];
    read_text(hierarchy, path, file, text, sizeof text, failure);
    return text[0] == '\0' ? -1 : strtoll(text, NULL, 10);
}

static int64_t us_of_ns(int64_t nanoseconds)
{
    return nanoseconds < 0 ? -1 : nanoseconds / 1000;
}

static int64_t us_of_ticks(int64_t ticks)
{
    return ticks < 0 ? -1 : ticks * (1000000 / sysconf(_SC_CLK_TCK));
}

static void read_memory_v2(const struct wsrt_cgroup_hierarchy *memory, const char *path,
                           struct wsrt_cgroup_statistics *out, struct wsrt_error *failure)
{
    char text[TEXT_SIZE];
    out->memory_bytes = number_in(memory, path, "memory.current", failure);
    out->memory_peak_bytes = number_in(memory, path, "memory.peak", failure); /* from Linux 5.19 */
    read_text(memory, path, "memory.stat", text, sizeof text, failure);
    out->memory_anon_bytes = wsrt_cgroup_number(text, "anon");
    out->memory_file_bytes = wsrt_cgroup_number(text, "file");
    out->memory_kernel_bytes = wsrt_cgroup_number(text, "kernel"); /* from Linux 5.18 */
    read_text(memory, path, "memory.events", text, sizeof text, failure);
    out->oom_kills = wsrt_cgroup_number(text, "oom_kill");
}

static void read_memory_v1(const struct wsrt_cgroup_hierarchy *memory, const char *path,
                           struct wsrt_cgroup_statistics *out, struct wsrt_error *failure)
{
    char text[TEXT_SIZE];
    out->memory_bytes = number_in(memory, path, "memory.usage_in_bytes", failure);
    out->memory_peak_bytes = number_in(memory, path, "memory.max_usage_in_bytes", failure);
    read_text(memory, path, "memory.stat", text, sizeof text, failure);
    out->memory_anon_bytes = wsrt_cgroup_number(text, "total_rss");
    out->memory_file_bytes = wsrt_cgroup_number(text, "total_cache");
    out->memory_kernel_bytes = number_in(memory, path, "memory.kmem.usage_in_bytes", failure);
    read_text(memory, path, "memory.oom_control", text, sizeof text, failure);
    out->oom_kills = wsrt_cgroup_number(text, "oom_kill");
}

/* Every v2 group counts its cpu time, with the cpu controller or without; throttling belongs to the controller.
 * Of v1's figures for user and system time, those of cpuacct.stat add up to the usage (from Linux 5.17), those of
 * cpuacct.usage_user and _sys miss what falls between ticks. */
static void read_cpu(const struct wsrt_cgroup_mounts *mounts, const char *path, struct wsrt_cgroup_statistics *out,
                     struct wsrt_error *failure)
{
    char text[TEXT_SIZE];
    const struct wsrt_cgroup_hierarchy *v2 = wsrt_cgroup_v2(mounts);
    const struct wsrt_cgroup_hierarchy *cpu = wsrt_cgroup_with(mounts, WSRT_CGROUP_CPU);
    const struct wsrt_cgroup_hierarchy *cpuacct = wsrt_cgroup_with(mounts, WSRT_CGROUP_CPUACCT);
    if (v2 != NULL) {
        read_text(v2, path, "cpu.stat", text, sizeof text, failure);
        out->cpu_us = wsrt_cgroup_number(text, "usage_usec");
        out->cpu_user_us = wsrt_cgroup_number(text, "user_usec");
        out->cpu_system_us = wsrt_cgroup_number(text, "system_usec");
        out->cpu_throttled_us = wsrt_cgroup_number(text, "throttled_usec");
    } else if (cpuacct != NULL) {
        out->cpu_us = us_of_ns(number_in(cpuacct, path, "cpuacct.usage", failure));
        read_text(cpuacct, path, "cpuacct.stat", text, sizeof text, failure);
        out->cpu_user_us = us_of_ticks(wsrt_cgroup_number(text, "user"));
        out->cpu_system_us = us_of_ticks(wsrt_cgroup_number(text, "system"));
    }
    if (cpu != NULL && cpu->version == 1) {
        read_text(cpu, path, "cpu.stat", text, sizeof text, failure);
        out->cpu_throttled_us = us_of_ns(wsrt_cgroup_number(text, "throttled_time"));
    }
}

/* v2: "254:0 rbytes=4096 wbytes=0 rios=1 ..." for each device, v1: "254:0 Read 4096"; sum what follows KEY. */
static int64_t sum_after(const char *text, const char *key)
{
    int64_t sum = 0;
    for (const char *at = text; (at = strstr(at, key)) != NULL;) {
        at += strlen(key);
        sum += strtoll(at, NULL, 10);
    }
    return sum;
}

/* The file of a v2 group that has done no io is empty: 0. An empty one in v1 says nothing: there the kernel
 * counts only on disks that some group has a rate limit on, and no buffered writes. */
static void read_io(const struct wsrt_cgroup_hierarchy *io, const char *path, struct wsrt_cgroup_statistics *out,
                    struct wsrt_error *failure)
{
    char text[TEXT_SIZE];
    int is_v2 = io->version == 2;
    const char *file = is_v2 ? "io.stat" : "blkio.throttle.io_service_bytes_recursive";
    if (read_text(io, path, file, text, sizeof text, failure) < 0)
        return;
    if (!is_v2 && strstr(text, " Read ") == NULL)
        return;
    out->io_read_bytes = sum_after(text, is_v2 ? "rbytes=" : " Read ");
    out->io_written_bytes = sum_after(text, is_v2 ? "wbytes=" : " Write ");
}

int wsrt_cgroup_statistics(const struct wsrt_cgroup_mounts *mounts, const char *path,
                           struct wsrt_cgroup_statistics *out, struct wsrt_error *err)
{
    struct wsrt_error failure = {0};
    memset(out, 0xff, sizeof *out); /* -1 all over */
    if (wsrt_cgroup_check_path(path, err) < 0)
        return -1;
    for (int i = 0; i < mounts->n_hierarchies; i++) {
        const struct wsrt_cgroup_hierarchy *hierarchy = &mounts->hierarchies[i];
        if (hierarchy->fd >= 0 && faccessat(hierarchy->fd, path, F_OK, 0) < 0)
            return wsrt_fail(err, "read statistics of cgroup", "%s/%s", hierarchy->directory, path);
    }
    const struct wsrt_cgroup_hierarchy *memory = wsrt_cgroup_with(mounts, WSRT_CGROUP_MEMORY);
    const struct wsrt_cgroup_hierarchy *pids = wsrt_cgroup_with(mounts, WSRT_CGROUP_PIDS);
    const struct wsrt_cgroup_hierarchy *io = wsrt_cgroup_with(mounts, WSRT_CGROUP_IO);
    if (memory != NULL && memory->version == 2)
        read_memory_v2(memory, path, out, &failure);
    else if (memory != NULL)
        read_memory_v1(memory, path, out, &failure);
    read_cpu(mounts, path, out, &failure);
    if (pids != NULL)
        out->pids = number_in(pids, path, "pids.current", &failure);
    if (io != NULL)
        read_io(io, path, out, &failure);
    if (failure.code == 0)
        return 0;
    return wsrt_fail_with(err, failure.code, failure.step, "%s", failure.object);
}
