#include "serve.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { POLL_MS = 2 };

struct server {
    struct service *services;
    int n_services;
    int n_started;
    int stop_signal;
    int is_stopping;
    int failed;
};

static long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void report_end(const struct service *service)
{
    int status = service->exit_status;
    if (WIFSIGNALED(status))
        dprintf(STDERR_FILENO, "%s was killed by signal %d (%s)\n", service->name, WTERMSIG(status),
                strsignal(WTERMSIG(status)));
    else
        dprintf(STDERR_FILENO, "%s exited with status %d\n", service->name, WEXITSTATUS(status));
}

/* Every orphan of the instance becomes pid 1's child, so most of what is reaped is no service. */
static void reap(struct server *server)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        for (int i = 0; i < server->n_started; i++) {
            struct service *service = &server->services[i];
            if (service->pid != pid)
                continue;
            service->pid = 0;
            service->exit_status = status;
            if (!service->runs_once || status != 0)
                report_end(service);
        }
    }
}

static void stop(struct server *server)
{
    server->is_stopping = 1;
    for (int i = server->n_started - 1; i >= 0; i--)
        if (server->services[i].pid > 0)
            kill(server->services[i].pid, server->stop_signal);
}

/* Wait for a signal, at most TIMEOUT_MS (-1: for ever), and act on it. */
static void handle_signal(struct server *server, const sigset_t *handled, int timeout_ms)
{
    struct timespec timeout = {timeout_ms / 1000, (timeout_ms % 1000) * 1000000L};
    int signal_number = timeout_ms < 0 ? sigwaitinfo(handled, NULL) : sigtimedwait(handled, NULL, &timeout);
    if (signal_number == SIGTERM || signal_number == SIGINT)
        stop(server);
    reap(server);
}

static void await_end(struct server *server, const sigset_t *handled, struct service *service)
{
    while (service->pid > 0)
        handle_signal(server, handled, -1);
    if (service->exit_status != 0)
        server->failed = 1;
}

static void report_absence(const struct service *service)
{
    if (service->pid == 0)
        dprintf(STDERR_FILENO, "%s ended before it was there\n", service->name);
    else if (service->wait == WAIT_TCP)
        dprintf(STDERR_FILENO, "%s: no TCP port %d after %d ms\n", service->name, service->wait_port,
                service->wait_timeout_ms);
    else
        dprintf(STDERR_FILENO, "%s: no %s after %d ms\n", service->name, service->wait_path, service->wait_timeout_ms);
}

static void await_presence(struct server *server, const sigset_t *handled, struct service *service)
{
    long deadline = now_ms() + service->wait_timeout_ms;
    while (!server->is_stopping && !service_is_there(service)) {
        if (service->pid == 0 || now_ms() > deadline) {
            report_absence(service);
            server->failed = 1;
            return;
        }
        handle_signal(server, handled, POLL_MS);
    }
}

static void start_all(struct server *server, const sigset_t *handled)
{
    for (int i = 0; i < server->n_services && !server->failed && !server->is_stopping; i++) {
        struct service *service = &server->services[i];
        server->n_started = i + 1;
        if (service_start(service) < 0) {
            dprintf(STDERR_FILENO, "%s: cannot fork: %s\n", service->name, strerror(errno));
            server->failed = 1;
        } else if (service->runs_once) {
            await_end(server, handled, service);
        } else if (service->wait != WAIT_NONE) {
            await_presence(server, handled, service);
        }
    }
    if (server->failed)
        stop(server);
}

static int any_alive(const struct server *server)
{
    for (int i = 0; i < server->n_started; i++)
        if (server->services[i].pid > 0)
            return 1;
    return 0;
}

int serve(struct service *services, int n_services, int stop_signal)
{
    struct server server = {.services = services, .n_services = n_services, .stop_signal = stop_signal};
    sigset_t handled;
    sigemptyset(&handled);
    sigaddset(&handled, SIGCHLD);
    sigaddset(&handled, SIGTERM);
    sigaddset(&handled, SIGINT);
    sigprocmask(SIG_SETMASK, &handled, NULL);

    start_all(&server, &handled);
    while (any_alive(&server))
        handle_signal(&server, &handled, -1);
    return server.failed ? 1 : 0;
}
