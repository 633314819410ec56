#include "spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arch.h"
#include "cleanup.h"
#include "plan.h"

enum { CONTROL_FD = 3, MAX_FDS = 200, REPORT_TIMEOUT_S = 10 };

/* In the child, on the parent's memory and stack: system calls only, until the program replaces it. */
static void __attribute__((noinline, noreturn, no_sanitize("address", "undefined")))
become_program(int program_fd, int control_fd)
{
    static char *const arguments[] = {(char *)"wsrt-init", NULL};
#ifdef WSRT_FAULTS
    char *const environment[] = {(char *)wsrt_faults_environment(), NULL};
#else
    static char *const environment[] = {NULL};
#endif
    int fd = program_fd;
    /* Out of the way first, so that descriptor 3 is free whatever number the two had. */
    if (fd == CONTROL_FD)
        fd = fcntl(fd, F_DUPFD_CLOEXEC, CONTROL_FD + 1);
    if (control_fd == CONTROL_FD)
        fcntl(CONTROL_FD, F_SETFD, 0);
    else
        dup3(control_fd, CONTROL_FD, 0);
    /* Descriptors of the embedding program that lack close-on-exec must not leak into an instance. */
    if (close_range(CONTROL_FD + 1, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
        _exit(127);
    syscall(SYS_execveat, fd, "", arguments, environment, AT_EMPTY_PATH);
    _exit(127);
}

static pid_t __attribute__((no_sanitize("address", "undefined")))
start(const struct wsrt_spawn *request, int control_fd, int *pidfd, struct wsrt_error *err)
{
    struct clone_args arguments = {
        .flags = CLONE_VM | CLONE_VFORK | CLONE_PIDFD | CLONE_CLEAR_SIGHAND,
        .pidfd = (uint64_t)(uintptr_t)pidfd,
    };
    if (request->flags & WSRT_SPAWN_NEW_INSTANCE)
        arguments.flags |= CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS;
    if (request->cgroup_fd >= 0) {
        arguments.flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = (uint64_t)request->cgroup_fd;
    }

    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    long pid = wsrt_inline_clone3(&arguments, sizeof arguments);
    if (pid == 0)
        become_program(request->program_fd, control_fd);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pid < 0)
        return wsrt_fail_with(err, (int)-pid, "clone process", "wsrt-init");
    return (pid_t)pid;
}

static int send_all(int fd, const unsigned char *bytes, size_t length)
{
    while (length > 0) {
        ssize_t sent = send(fd, bytes, length, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return -1;
        bytes += sent;
        length -= (size_t)sent;
    }
    return 0;
}

/* First the length with the descriptors, then the plan itself. */
static int send_plan(int fd, const struct wsrt_spawn *request, struct wsrt_error *err)
{
    union {
        char bytes[CMSG_SPACE(MAX_FDS * sizeof(int))];
        struct cmsghdr aligned;
    } control;
    uint32_t length = request->plan_bytes;
    struct iovec part = {&length, sizeof length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (length > WSRT_PLAN_MAX_BYTES)
        return wsrt_fail_with(err, E2BIG, "hand over plan", "%u bytes, %d at most", length, WSRT_PLAN_MAX_BYTES);
    if (request->n_fds > MAX_FDS)
        return wsrt_fail_with(err, E2BIG, "hand over descriptors", "%d of them", request->n_fds);
    if (request->n_fds > 0) {
        size_t bytes = (size_t)request->n_fds * sizeof(int);
        memset(&control, 0, sizeof control);
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(bytes);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(bytes);
        memcpy(CMSG_DATA(header), request->fds, bytes);
    }
    if (sendmsg(fd, &message, MSG_NOSIGNAL) != sizeof length ||
        send_all(fd, request->plan, request->plan_bytes) < 0)
        return wsrt_fail(err, "send plan", "wsrt-init");
    return 0;
}

/* The program answers with one struct wsrt_error: code 0 for success. */
static int await_report(int fd, struct wsrt_error *err)
{
    struct wsrt_error report;
    ssize_t received;
    /* Once it has the ids of the instance, a hostile root in there can stop it for good. */
    const struct timeval timeout = {.tv_sec = REPORT_TIMEOUT_S};
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) < 0)
        return wsrt_fail(err, "set time-out", "wsrt-init");
    do
        received = recv(fd, &report, sizeof report, MSG_WAITALL);
    while (received < 0 && errno == EINTR);
    if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return wsrt_fail_with(err, ETIMEDOUT, "start wsrt-init", "no report within %d s", REPORT_TIMEOUT_S);
    if (received != sizeof report)
        return wsrt_fail_with(err, received < 0 ? errno : EPIPE, "start wsrt-init", "it ended without a report");
    if (report.code == 0)
        return 0;
    report.step[sizeof report.step - 1] = '\0';
    report.object[sizeof report.object - 1] = '\0';
    return wsrt_fail_with(err, report.code, report.step, "%s", report.object);
}

/* By descriptor: another thread may have reaped it, as it does with every child, and its pid be somebody else's. */
static void end_and_reap(int pidfd, int signal_number)
{
    siginfo_t end;
    int code = errno;
    (syscall)(SYS_pidfd_send_signal, pidfd, signal_number, NULL, 0); /* in parentheses: see faults.h */
    while (waitid(P_PIDFD, (id_t)pidfd, &end, WEXITED | __WALL) < 0 && errno == EINTR)
        ;
    errno = code;
}

void wsrt_end_process(const struct wsrt_process *process, int signal_number)
{
    end_and_reap(process->pidfd, signal_number);
    cleanup_close(&(int){process->control_fd});
    cleanup_close(&(int){process->pidfd});
}

int wsrt_spawn(const struct wsrt_spawn *request, struct wsrt_process *out, struct wsrt_error *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return wsrt_fail(err, "open socket pair", "wsrt-init");
    CLEANUP_FD int host_end = pair[0];
    CLEANUP_FD int child_end = pair[1];
    CLEANUP_FD int pidfd = -1;

    pid_t pid = start(request, child_end, &pidfd, err);
    if (pid < 0)
        return -1;
    close(steal_fd(&child_end));
    if (send_plan(host_end, request, err) < 0 || await_report(host_end, err) < 0) {
        /* One that may have forked already is told to end its child first. */
        end_and_reap(pidfd, request->flags & WSRT_SPAWN_NEW_INSTANCE ? SIGKILL : SIGTERM);
        return -1;
    }
    out->pid = pid;
    out->pidfd = steal_fd(&pidfd);
    out->control_fd = request->flags & WSRT_SPAWN_NEW_INSTANCE ? -1 : steal_fd(&host_end);
    return 0;
}
