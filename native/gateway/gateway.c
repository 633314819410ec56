#include "gateway/gateway.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cleanup.h"
#include "gateway/core.h"
#include "gateway/loop.h"

/* The watch of the calls' eventfd: the calls themselves are run at the end of every turn. */
static void on_wake(struct wsrt_gateway *gateway, struct watch *watch, uint32_t events)
{
    (void)watch, (void)events;
    eventfd_t n_calls;
    eventfd_read(gateway->calls.wake_fd, &n_calls);
}

static int open_descriptors(struct wsrt_gateway *gateway, struct wsrt_error *err)
{
    gateway->home_netns_fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    if (gateway->home_netns_fd < 0)
        return wsrt_fail(err, "open", "/proc/thread-self/ns/net");
    gateway->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (gateway->epoll_fd < 0)
        return wsrt_fail(err, "epoll_create", "gateway");
    gateway->wake.on_events = on_wake;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &gateway->wake};
    if (epoll_ctl(gateway->epoll_fd, EPOLL_CTL_ADD, gateway->calls.wake_fd, &event) < 0)
        return wsrt_fail(err, "watch", "gateway's calls");
    return 0;
}

static void init_lists(struct wsrt_gateway *gateway)
{
    list_init(&gateway->handshakes.waiting);
    list_init(&gateway->holds.waiting);
    list_init(&gateway->connects.waiting);
    list_init(&gateway->busy);
    list_init(&gateway->dead);
    list_init(&gateway->muted);
}

/* No signal is to be handled by the gateway's thread: it inherits a mask that blocks them all. */
static int start_thread(struct wsrt_gateway *gateway, struct wsrt_error *err)
{
    sigset_t all, saved;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved);
    int error = pthread_create(&gateway->thread, NULL, loop_run, gateway);
    pthread_sigmask(SIG_SETMASK, &saved, NULL);
    return error == 0 ? 0 : wsrt_fail_with(err, error, "start thread", "gateway");
}

/* Close what only the thread uses. */
static void close_descriptors(struct wsrt_gateway *gateway)
{
    cleanup_close(&gateway->epoll_fd);
    cleanup_close(&gateway->home_netns_fd);
    gateway->epoll_fd = gateway->home_netns_fd = -1;
}

static void release(struct wsrt_gateway *gateway)
{
    close_descriptors(gateway);
    calls_release(&gateway->calls);
    pthread_mutex_destroy(&gateway->stop_mutex);
    free(gateway->backends.entries);
    free(gateway->listeners.entries);
    free(gateway->scratch);
    free(gateway);
}

struct wsrt_gateway *wsrt_gateway_start(const struct wsrt_gateway_limits *limits, struct wsrt_error *err)
{
    struct wsrt_gateway *gateway = calloc(1, sizeof *gateway);
    if (gateway == NULL || calls_init(&gateway->calls, err) < 0) {
        wsrt_fail(err, "allocate", "gateway");
        free(gateway);
        return NULL;
    }
    gateway->epoll_fd = gateway->home_netns_fd = -1;
    gateway->handshakes.timeout_ms = limits->handshake_timeout_ms;
    gateway->holds.timeout_ms = limits->hold_timeout_ms;
    gateway->connects.timeout_ms = limits->connect_timeout_ms;
    gateway->max_parked = limits->max_parked;
    gateway->scratch = malloc(SCRATCH_SIZE);
    pthread_mutex_init(&gateway->stop_mutex, NULL);
    init_lists(gateway);
    if (gateway->scratch == NULL)
        wsrt_fail(err, "allocate", "gateway");
    else if (open_descriptors(gateway, err) == 0 && start_thread(gateway, err) == 0)
        return gateway;
    release(gateway);
    return NULL;
}

static int run_stop(struct wsrt_gateway *gateway, void *arguments, struct wsrt_error *err)
{
    (void)arguments, (void)err;
    gateway->is_stopping = true;
    return 0;
}

void wsrt_gateway_stop(struct wsrt_gateway *gateway)
{
    if (calls_are_orphaned(&gateway->calls))
        return;
    pthread_mutex_lock(&gateway->stop_mutex);
    if (!gateway->is_joined) {
        calls_submit(&gateway->calls, run_stop, NULL, NULL);
        pthread_join(gateway->thread, NULL);
        gateway->is_joined = true;
        close_descriptors(gateway);
    }
    pthread_mutex_unlock(&gateway->stop_mutex);
}

void wsrt_gateway_free(struct wsrt_gateway *gateway)
{
    if (calls_are_orphaned(&gateway->calls))
        return; /* what waits on its condition is in the other process, and would be waited for here */
    wsrt_gateway_stop(gateway);
    release(gateway);
}
