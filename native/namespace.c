#include "namespace.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cleanup.h"
#include "plan.h"
#include "spawn.h"

static int write_id_map(pid_t pid, const char *file, const char *map, struct wsrt_error *err)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
    CLEANUP_FD int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return wsrt_fail(err, "open id map", "%s", path);
    if (write(fd, map, strlen(map)) < 0)
        return wsrt_fail(err, "write id map", "%s: %s", file, map);
    return 0;
}

static int map_and_open(pid_t pid, unsigned first_id, unsigned count, struct wsrt_error *err)
{
    char map[64];
    char path[64];
    snprintf(map, sizeof map, "0 %u %u", first_id, count);
    if (write_id_map(pid, "uid_map", map, err) < 0 || write_id_map(pid, "gid_map", map, err) < 0)
        return -1;
    snprintf(path, sizeof path, "/proc/%d/ns/user", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? wsrt_fail(err, "open user namespace", "%s", path) : fd;
}

int wsrt_namespace_user(int program_fd, unsigned first_id, unsigned count, struct wsrt_error *err)
{
    const struct __attribute__((packed)) {
        uint32_t magic, n_steps, kind, n_numbers, n_texts;
        int64_t owner;
    } plan = {WSRT_PLAN_MAGIC, 1, WSRT_STEP_OWN_NAMESPACE, 1, 0, first_id};
    const struct wsrt_spawn request = {
        .program_fd = program_fd, .plan = (const unsigned char *)&plan, .plan_bytes = sizeof plan, .cgroup_fd = -1};
    struct wsrt_process maker;

    if (wsrt_spawn(&request, &maker, err) < 0)
        return -1;
    int fd = map_and_open(maker.pid, first_id, count, err);
    wsrt_end_process(&maker, SIGKILL);
    return fd;
}

struct network_call {
    struct wsrt_error *err;
    int fd;
};

static int bring_loopback_up(struct wsrt_error *err)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    CLEANUP_FD int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return wsrt_fail(err, "open socket", "new network namespace");
    if (ioctl(fd, SIOCSIFFLAGS, &request) < 0)
        return wsrt_fail(err, "bring interface up", "lo");
    return 0;
}

/* The namespace belongs to the host's user namespace, so no capability inside an instance reaches it; binding
 * port 80 is what servers need of it. */
static int open_low_ports(struct wsrt_error *err)
{
    const char *path = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
    CLEANUP_FD int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return wsrt_fail(err, "open sysctl", "%s", path);
    if (write(fd, "0", 1) < 0)
        return wsrt_fail(err, "write sysctl", "%s", path);
    return 0;
}

static int make_network(struct wsrt_error *err)
{
    if (unshare(CLONE_NEWNET) < 0)
        return wsrt_fail(err, "create network namespace", "unshare");
    if (bring_loopback_up(err) < 0 || open_low_ports(err) < 0)
        return -1;
    int fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    return fd < 0 ? wsrt_fail(err, "open network namespace", "/proc/thread-self/ns/net") : fd;
}

static void *run_make_network(void *argument)
{
    struct network_call *call = argument;
    call->fd = make_network(call->err);
    return NULL;
}

int wsrt_namespace_network(struct wsrt_error *err)
{
    struct network_call call = {.err = err, .fd = -1};
    pthread_t thread;
    int code = pthread_create(&thread, NULL, run_make_network, &call);
    if (code != 0)
        return wsrt_fail_with(err, code, "start thread", "network namespace");
    pthread_join(thread, NULL);
    return call.fd;
}
