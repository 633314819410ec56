/* The static program that runs inside instances: pid 1 of each, and the way in for `exec`. It is started with one
 * socket (descriptor 3), receives a plan with its descriptors (../plan.h), carries it out and reports. It parses
 * nothing an instance could have written, and it never returns to the host's view of anything. */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../arch.h"
#include "confine.h"
#include "plan.h"
#include "root.h"
#include "serve.h"

enum { CONTROL_FD = 3, MAX_SERVICES = 64 };

struct run {
    struct plan plan;
    struct step step;
    struct service services[MAX_SERVICES];
    int n_services;
};

static void report(const struct wsrt_error *err)
{
    (void)!send(CONTROL_FD, err, sizeof *err, MSG_NOSIGNAL);
    close(CONTROL_FD);
}

static int join_cgroup(int tasks_fd, struct wsrt_error *err)
{
    /* "0" is oneself: unlike a pid written by somebody else it takes no system-wide lock (15 us against 12 ms). */
    if (write(tasks_fd, "0", 1) != 1)
        return wsrt_fail(err, "join cgroup", "fd %d", tasks_fd);
    return 0;
}

static int limit_open_files(rlim_t wanted, struct wsrt_error *err)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return wsrt_fail(err, "read limit", "open files");
    /* Never above the present hard limit: raising it needs CAP_SYS_RESOURCE, which the host may not have. */
    if (wanted < limit.rlim_max)
        limit.rlim_max = wanted;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
        return wsrt_fail(err, "set limit", "open files");
    return 0;
}

static int add_service(struct run *run, struct wsrt_error *err)
{
    if (run->n_services == MAX_SERVICES)
        return wsrt_fail_with(err, E2BIG, "read plan", "more than %d services", MAX_SERVICES);
    return service_decode(&run->plan, &run->step, &run->services[run->n_services++], err);
}

static int is_standard_io(const struct run *run, int fd)
{
    for (int i = 0; i < run->n_services; i++)
        for (int j = 0; j < 3; j++)
            if (run->services[i].stdio[j] == fd)
                return 1;
    return 0;
}

/* Root inside can look at pid 1's descriptors: what the set-up alone needed must not be among them. */
static void close_handed_over(const struct run *run)
{
    for (int i = 0; i < run->plan.n_fds; i++)
        if (!is_standard_io(run, run->plan.fds[i]))
            close(run->plan.fds[i]);
}

static int start_serving(struct run *run, struct wsrt_error *err)
{
    /* Its own messages go to a log of its own; the host's streams must not stay. */
    int log_fd = plan_fd(&run->plan, &run->step, 1);
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null_fd < 0 || dup2(null_fd, STDIN_FILENO) < 0 ||
        dup2(log_fd >= 0 ? log_fd : null_fd, STDOUT_FILENO) < 0 || dup2(STDOUT_FILENO, STDERR_FILENO) < 0)
        return wsrt_fail(err, "connect standard streams", "pid 1");
    close(null_fd);
    close_handed_over(run);
    /* The change of user made /proc/1 belong to the host's root: root inside could not read its own pid 1. Not sooner:
     * who may read it may also trace it, and use the descriptors that it still has. */
    if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
        return wsrt_fail(err, "set dumpable", "pid 1");
    report(&(struct wsrt_error){0});
    exit(serve(run->services, run->n_services, (int)run->step.numbers[0]));
}

/* The kernel counts some of what the users of a namespace hold (inotify instances, queued signals) as held by the user
 * who made it, too. Were that root, all instances and the host's own services would share one allowance. */
static int own_namespace(uid_t owner, struct wsrt_error *err)
{
    char byte;
    /* With its capabilities: some hosts let nobody make a user namespace without. */
    if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0)
        return wsrt_fail(err, "keep capabilities", "uid %u", owner);
    if (setresuid((uid_t)-1, owner, (uid_t)-1) < 0)
        return wsrt_fail(err, "become", "uid %u", owner);
    if (unshare(CLONE_NEWUSER) < 0)
        return wsrt_fail(err, "create user namespace", "of uid %u", owner);
    struct wsrt_error none = {0};
    (void)!send(CONTROL_FD, &none, sizeof none, MSG_NOSIGNAL);
    while (recv(CONTROL_FD, &byte, 1, 0) < 0 && errno == EINTR)
        ;
    _exit(0);
}

static int execute(struct run *run, struct wsrt_error *err)
{
    struct service service;
    if (service_decode(&run->plan, &run->step, &service, err) < 0)
        return -1;
    report(&(struct wsrt_error){0});
    service_become(&service);
    _exit(127);
}

/* It neither joins the instance's cgroup nor enters its pid namespace, so that whoever kills the instance leaves it to
 * reap the child. Had the child no parent any more, it would be for the host's pid 1 to reap, and some never do: the
 * zombie would keep the whole pid namespace from ending. SIGTERM has it kill the child. */
static void __attribute__((noreturn)) stand_by(pid_t child, const sigset_t *handled)
{
    int status;
    close_range(0, CONTROL_FD - 1, 0);
    close_range(CONTROL_FD + 1, ~0U, 0);
    for (;;) {
        pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended == child) {
            status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
            /* Whoever waits for us may find that another part of the embedding program has done so already. */
            (void)!send(CONTROL_FD, &status, sizeof status, MSG_NOSIGNAL);
            _exit(status);
        }
        if (ended < 0 && errno != EINTR)
            _exit(127);
        if (sigwaitinfo(handled, NULL) == SIGTERM)
            kill(child, SIGKILL);
    }
}

static int fork_into(int cgroup_fd, struct wsrt_error *err)
{
    struct clone_args arguments = {.exit_signal = SIGCHLD};
    sigset_t handled;

    if (cgroup_fd >= 0) {
        arguments.flags = CLONE_INTO_CGROUP;
        arguments.cgroup = (uint64_t)cgroup_fd;
    }
    sigemptyset(&handled);
    sigaddset(&handled, SIGCHLD);
    sigaddset(&handled, SIGTERM);
    sigprocmask(SIG_BLOCK, &handled, NULL);
    long child = wsrt_inline_clone3(&arguments, sizeof arguments);
    if (child < 0)
        return wsrt_fail_with(err, (int)-child, "fork", "into the instance");
    if (child > 0)
        stand_by((pid_t)child, &handled);
    if (setsid() < 0)
        return wsrt_fail(err, "start session", "in the instance");
    return 0;
}

static int carry_out(struct run *run, struct wsrt_error *err)
{
    struct step *step = &run->step;
    int fd = plan_fd(&run->plan, step, 0);

    switch (step->kind) {
    case WSRT_STEP_JOIN_CGROUP:
        return join_cgroup(fd, err);
    case WSRT_STEP_UNSHARE:
        if (unshare((int)step->numbers[0]) < 0)
            return wsrt_fail(err, "unshare namespaces", "%x", (unsigned)step->numbers[0]);
        return 0;
    case WSRT_STEP_ENTER:
        if (setns(fd, (int)step->numbers[1]) < 0)
            return wsrt_fail(err, "enter namespaces", "%x", (unsigned)step->numbers[1]);
        return 0;
    case WSRT_STEP_HOST_NAME:
        if (sethostname(step->texts[0], strlen(step->texts[0])) < 0)
            return wsrt_fail(err, "set host name", "%s", step->texts[0]);
        return 0;
    case WSRT_STEP_ROOT:
        return root_switch(fd, err);
    case WSRT_STEP_MOUNT:
        return root_mount(step->texts[0], step->texts[1], (unsigned long)step->numbers[0], step->texts[2], err);
    case WSRT_STEP_ATTACH:
        return root_attach(fd, step->texts[0], err);
    case WSRT_STEP_MASK:
        return root_mask(step->texts[0], err);
    case WSRT_STEP_READ_ONLY:
        return root_read_only(step->texts[0], err);
    case WSRT_STEP_DEVICES:
        return root_devices((unsigned)step->numbers[0], err);
    case WSRT_STEP_OPEN_FILES:
        return limit_open_files((rlim_t)step->numbers[0], err);
    case WSRT_STEP_CONFINE:
        return confine(fd, (uint64_t)step->numbers[1], err);
    case WSRT_STEP_SERVICE:
        return add_service(run, err);
    case WSRT_STEP_SERVE:
        return start_serving(run, err);
    case WSRT_STEP_EXEC:
        return execute(run, err);
    case WSRT_STEP_OWN_NAMESPACE:
        return own_namespace((uid_t)step->numbers[0], err);
    case WSRT_STEP_FORK:
        return fork_into(fd, err);
    default:
        return wsrt_fail_with(err, EPROTO, "read plan", "unknown step %u", step->kind);
    }
}

/* What the embedding program leaves to its children is not for an instance: a terminal that controls its session;
 * signals that it ignores, the end of children among them; standard streams that it has closed, whose numbers would go
 * to what the plan brings. */
static int leave_embedder(struct wsrt_error *err)
{
    sigset_t none;
    int fd;
    if (setsid() < 0)
        return wsrt_fail(err, "start session", "wsrt-init");
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    do
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd < 0)
        return wsrt_fail(err, "open", "/dev/null");
    close(fd);
    return 0;
}

int main(void)
{
    static struct run run;
    struct wsrt_error err = {0};
    int more;

    fcntl(CONTROL_FD, F_SETFD, FD_CLOEXEC);
    if (leave_embedder(&err) == 0 && plan_receive(CONTROL_FD, &run.plan, &err) == 0)
        while ((more = plan_next(&run.plan, &run.step, &err)) > 0)
            if (carry_out(&run, &err) < 0)
                break;
    if (err.code == 0)
        wsrt_fail_with(&err, EPROTO, "carry out plan", "it starts nothing");
    report(&err);
    return 1;
}
