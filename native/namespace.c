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
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cleanup.h"

enum { HOLDER_STACK_BYTES = 16384 };

/* The namespace needs a process to be made in; this one shares our memory (no page table is copied) and only
 * sleeps. It may not touch errno or the heap: the thread-local storage is the caller's (in parentheses, see
 * faults.h, for the same reason). AddressSanitizer would leave the marks of its variables on our stack. */
static int __attribute__((no_sanitize("address", "undefined"))) hold_namespace(void *owner_pid)
{
    /* It must not outlive an owner that is killed: it holds that one's memory and copies of its descriptors, the
     * lock that tells the living from the dead among them. */
    (syscall)(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if ((syscall)(SYS_getppid) != (intptr_t)owner_pid)
        return 0;
    for (;;)
        (syscall)(SYS_rt_sigsuspend, &(unsigned long){~0UL}, sizeof(unsigned long));
    return 0;
}

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

int wsrt_namespace_user(unsigned first_id, unsigned count, struct wsrt_error *err)
{
    char stack[HOLDER_STACK_BYTES] __attribute__((aligned(16)));
    sigset_t all;
    sigset_t before;

    /* The holder inherits the mask: a handler of the embedding program must not run on its stack. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    /* No exit signal: the embedding program's SIGCHLD handler and waitpid(-1) never see it. */
    pid_t holder = clone(hold_namespace, stack + sizeof stack, CLONE_VM | CLONE_NEWUSER, (void *)(intptr_t)getpid());
    int code = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (holder < 0)
        return wsrt_fail_with(err, code, "create user namespace", "ids %u+%u", first_id, count);

    int fd = map_and_open(holder, first_id, count, err);
    code = errno;
    kill(holder, SIGKILL);
    while (waitpid(holder, NULL, __WALL) < 0 && errno == EINTR)
        ;
    errno = code;
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
