#include "service.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { FIXED_NUMBERS = 12, FIXED_TEXTS = 3, CONNECT_MS = 100 };

static char **copy_texts(const char *const *texts, int count)
{
    char **copy = calloc((size_t)count + 1, sizeof *copy);
    if (copy != NULL)
        memcpy(copy, texts, (size_t)count * sizeof *copy);
    return copy;
}

int service_decode(const struct plan *plan, const struct step *step, struct service *service, struct wsrt_error *err)
{
    const int64_t *numbers = step->numbers;
    int n_arguments = (int)numbers[9];
    int n_environment = (int)numbers[10];
    int n_groups = (int)numbers[11];

    if (step->n_numbers < FIXED_NUMBERS || n_arguments < 1 || n_environment < 0 || n_groups < 0 || n_groups > 64 ||
        step->n_numbers != FIXED_NUMBERS + n_groups || step->n_texts != FIXED_TEXTS + n_arguments + n_environment)
        return wsrt_fail_with(err, EPROTO, "read plan", "service step");
    *service = (struct service){
        .name = step->texts[0],
        .directory = step->texts[1],
        .wait_path = step->texts[2],
        .uid = (uid_t)numbers[0],
        .gid = (gid_t)numbers[1],
        .runs_once = numbers[2] != 0,
        .wait = (enum service_wait)numbers[3],
        .wait_port = (int)numbers[4],
        .wait_timeout_ms = (int)numbers[5],
        .n_groups = n_groups,
    };
    for (int i = 0; i < n_groups; i++)
        service->groups[i] = (gid_t)numbers[FIXED_NUMBERS + i];
    for (int i = 0; i < 3; i++)
        if ((service->stdio[i] = plan_fd(plan, step, 6 + i)) == -2)
            return wsrt_fail_with(err, EPROTO, "read plan", "descriptor of service %s", service->name);
    service->arguments = copy_texts(step->texts + FIXED_TEXTS, n_arguments);
    service->environment = copy_texts(step->texts + FIXED_TEXTS + n_arguments, n_environment);
    if (service->arguments == NULL || service->environment == NULL)
        return wsrt_fail_with(err, ENOMEM, "allocate service", "%s", service->name);
    return 0;
}

/* Whatever descriptor stayed as it was would be one that the instance must not have. */
static int connect_stdio(const struct service *service)
{
    int lifted[3];
    /* Lifted first: a descriptor handed over may sit on the very number another one needs. */
    for (int i = 0; i < 3; i++) {
        int fd = service->stdio[i] >= 0 ? service->stdio[i] : open("/dev/null", O_RDWR | O_CLOEXEC);
        lifted[i] = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 10);
        if (lifted[i] < 0)
            return -1;
    }
    for (int i = 0; i < 3; i++)
        if (dup2(lifted[i], i) < 0)
            return -1;
    return close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
}

void service_become(const struct service *service)
{
    const char *step = "connect standard streams";
    sigset_t none;
    if (connect_stdio(service) < 0)
        goto failed;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    umask(022);
    step = "set groups";
    if (setgroups((size_t)service->n_groups, service->groups) < 0)
        goto failed;
    step = "set user";
    if (setresgid(service->gid, service->gid, service->gid) < 0 ||
        setresuid(service->uid, service->uid, service->uid) < 0)
        goto failed;
    step = service->directory;
    if (chdir(service->directory) < 0)
        goto failed;
    step = service->arguments[0];
    environ = service->environment;
    execvp(service->arguments[0], service->arguments);
failed:
    dprintf(STDERR_FILENO, "webserv_rt: cannot start %s: %s: %s\n", service->name, step, strerror(errno));
}

pid_t service_start(struct service *service)
{
    pid_t pid = fork();
    if (pid == 0) {
        setsid();
        service_become(service);
        _exit(127);
    }
    service->pid = pid > 0 ? pid : 0;
    return pid;
}

static int connects(int family, const struct sockaddr *address, socklen_t length)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return 0;
    int code = connect(fd, address, length) == 0 ? 0 : errno;
    if (code == EINPROGRESS) {
        /* Loopback answers at once; but while connect holds the socket, even the refusal waits behind it. */
        struct pollfd connected = {.fd = fd, .events = POLLOUT};
        socklen_t size = sizeof code;
        if (poll(&connected, 1, CONNECT_MS) == 1)
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &size);
    }
    close(fd);
    return code == 0;
}

int service_is_there(const struct service *service)
{
    struct sockaddr_in tcp = {.sin_family = AF_INET, .sin_port = htons((uint16_t)service->wait_port)};
    struct sockaddr_un local = {.sun_family = AF_UNIX};

    switch (service->wait) {
    case WAIT_TCP:
        tcp.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        return connects(AF_INET, (struct sockaddr *)&tcp, sizeof tcp);
    case WAIT_UNIX:
        if (strlen(service->wait_path) >= sizeof local.sun_path)
            return 0;
        strcpy(local.sun_path, service->wait_path);
        return connects(AF_UNIX, (struct sockaddr *)&local, sizeof local);
    case WAIT_PATH:
        return access(service->wait_path, F_OK) == 0;
    default:
        return 1;
    }
}
