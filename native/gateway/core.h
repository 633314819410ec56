/* The gateway's state. All but `calls` and `thread` belongs to the gateway's own thread. */
#ifndef WSRT_GATEWAY_CORE_H
#define WSRT_GATEWAY_CORE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "gateway/call.h"
#include "gateway/deadline.h"
#include "gateway/gateway.h"
#include "gateway/list.h"
#include "gateway/registry.h"

/* What an epoll registration points to. */
struct watch {
    void (*on_events)(struct wsrt_gateway *gateway, struct watch *watch, uint32_t events);
};

struct wsrt_gateway {
    struct call_queue calls;
    struct watch wake; /* of the calls' eventfd */
    pthread_t thread;
    pthread_mutex_t stop_mutex;
    bool is_joined;

    bool is_stopping;
    int epoll_fd;
    int home_netns_fd;
    uint64_t now_ms; /* monotonic, as of the events being handled */
    uint32_t max_parked;
    struct registry backends;
    struct registry listeners;
    struct deadline_queue handshakes; /* of connections that say what they want */
    struct deadline_queue holds;      /* of parked connections */
    struct deadline_queue connects;   /* of connections being made to instances */
    struct list busy;                 /* connections that had more to carry than their turn allowed */
    struct list dead;                 /* connections to free when no event can name them any more */
    struct list muted;                /* listeners that do not listen for want of descriptors */
    uint64_t retry_ms;                /* when to try again after such want; 0: there is none */
    struct wsrt_gateway_traffic traffic;
    uint8_t *scratch; /* SCRATCH_SIZE bytes, empty between any two calls */
};

enum { SCRATCH_SIZE = 64 * 1024 };

/* Returns whether ERROR (an errno) is a want of descriptors or kernel memory, which passes. */
bool gateway_is_starved_by(int error);

/* Stop accepting, and leave connections parked, for a moment. */
void gateway_starve(struct wsrt_gateway *gateway);

#endif
