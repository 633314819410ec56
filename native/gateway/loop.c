#include "gateway/loop.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <time.h>

#include "gateway/backend.h"
#include "gateway/connection.h"
#include "gateway/core.h"
#include "gateway/listener.h"

enum {
    EVENTS_PER_TURN = 256,
    RETRY_AFTER_MS = 50,
};

static uint64_t monotonic_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

bool gateway_is_starved_by(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS || error == ENOSPC;
}

void gateway_starve(struct wsrt_gateway *gateway)
{
    gateway->retry_ms = gateway->now_ms + RETRY_AFTER_MS;
}

static void retry(struct wsrt_gateway *gateway)
{
    if (gateway->retry_ms == 0 || gateway->retry_ms > gateway->now_ms)
        return;
    gateway->retry_ms = 0;
    /* Those who wait come before those who knock. */
    for (size_t i = 0; i < gateway->backends.count; i++) {
        struct backend *backend = gateway->backends.entries[i].object;
        if (backend->netns_fd >= 0)
            backend_serve_parked(gateway, backend);
    }
    if (gateway->retry_ms == 0)
        listeners_unmute(gateway);
}

static int timeout_ms(const struct wsrt_gateway *gateway)
{
    if (!list_is_empty(&gateway->busy))
        return 0;
    const struct deadline_queue *queues[] = {&gateway->handshakes, &gateway->holds, &gateway->connects};
    uint64_t due_ms = gateway->retry_ms != 0 ? gateway->retry_ms : UINT64_MAX;
    for (size_t i = 0; i < sizeof queues / sizeof *queues; i++) {
        const struct deadline *first = deadline_first(queues[i]);
        if (first != NULL && first->due_ms < due_ms)
            due_ms = first->due_ms;
    }
    if (due_ms == UINT64_MAX)
        return -1;
    uint64_t now_ms = monotonic_ms();
    uint64_t left_ms = due_ms > now_ms ? due_ms - now_ms : 0;
    return left_ms < 1000000 ? (int)left_ms : 1000000;
}

static void handle_events(struct wsrt_gateway *gateway)
{
    struct epoll_event events[EVENTS_PER_TURN];
    int n_events = epoll_wait(gateway->epoll_fd, events, EVENTS_PER_TURN, timeout_ms(gateway));
    if (n_events < 0 && errno != EINTR)
        poll(NULL, 0, 1); /* not to spin, should it go on failing */
    gateway->now_ms = monotonic_ms();
    for (int i = 0; i < n_events; i++) {
        struct watch *watch = events[i].data.ptr;
        watch->on_events(gateway, watch, events[i].events);
    }
}

static void end_all(struct wsrt_gateway *gateway)
{
    while (gateway->listeners.count > 0)
        listener_free(gateway, gateway->listeners.entries[gateway->listeners.count - 1].object);
    connections_end_handshakes(gateway);
    while (gateway->backends.count > 0)
        backend_free(gateway, gateway->backends.entries[gateway->backends.count - 1].object);
    connections_bury(gateway);
}

void *loop_run(void *argument)
{
    struct wsrt_gateway *gateway = argument;
    prctl(PR_SET_NAME, "wsrt-gateway");
    gateway->now_ms = monotonic_ms();
    while (!gateway->is_stopping) {
        handle_events(gateway);
        connections_continue(gateway);
        connections_expire(gateway);
        retry(gateway);
        /* Calls come when no event is at hand any more, so that they may free listeners and backends. */
        calls_run(&gateway->calls, gateway);
        connections_bury(gateway);
    }
    end_all(gateway);
    calls_refuse(&gateway->calls);
    return gateway;
}
