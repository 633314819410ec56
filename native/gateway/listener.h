/* A front door: a listening socket, leading to one port of one backend or, by SOCKS, to a table of them. */
#ifndef WSRT_GATEWAY_LISTENER_H
#define WSRT_GATEWAY_LISTENER_H

#include "gateway/core.h"
#include "gateway/route.h"

struct listener {
    struct watch watch;
    int64_t id;
    int fd;
    struct list muted;
    bool is_socks;
    struct route_table routes; /* for SOCKS */
    int64_t backend;           /* else */
    uint16_t target_port;
    uint64_t n_refused;
};

/* Returns a listening socket and its port, or -1. */
int listener_bind(const char *address, uint16_t port, uint16_t *bound_port, struct wsrt_error *err);

/* Register a listener made ready but for its id and watch; returns its id, or -1 and the caller keeps all. */
int64_t listener_add(struct wsrt_gateway *gateway, struct listener *listener, struct wsrt_error *err);

void listener_free(struct wsrt_gateway *gateway, struct listener *listener);

/* Accept again where a want of descriptors stopped it. */
void listeners_unmute(struct wsrt_gateway *gateway);

#endif
