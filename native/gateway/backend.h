/* One instance slot: where its connections lead now, and which they are. */
#ifndef WSRT_GATEWAY_BACKEND_H
#define WSRT_GATEWAY_BACKEND_H

#include "gateway/core.h"

struct backend {
    int64_t id;
    int netns_fd; /* -1: held */
    struct list parked;
    struct list served; /* connections being made, or relayed */
    struct wsrt_gateway_traffic traffic;
};

/* Returns NULL when memory runs out. */
struct backend *backend_new(struct wsrt_gateway *gateway);

/* End the backend and its connections. */
void backend_free(struct wsrt_gateway *gateway, struct backend *backend);

void backend_hold(struct wsrt_gateway *gateway, struct backend *backend);

/* NETNS_FD becomes the backend's. */
void backend_open(struct wsrt_gateway *gateway, struct backend *backend, int netns_fd);

/* Carry parked connections into the namespace of an open backend, until descriptors run out. */
void backend_serve_parked(struct wsrt_gateway *gateway, struct backend *backend);

#endif
