/* The one way in: carries TCP connections from the host into instances' network namespaces.
 *
 * A gateway is one epoll thread. A *backend* stands for one instance slot and outlives resets: while it is held,
 * new connections wait; opening it names the network namespace that they, and later ones, are carried into. In
 * front of backends are *listeners*: ports, each leading to one port of one backend, and SOCKS5 servers, each with
 * its own table of destinations.
 *
 * Every function may be called from any thread. Backends and listeners are named by ids (> 0) that are never used
 * again; an id that is not, or no longer, known gives ENOENT, a stopped gateway ESHUTDOWN, that of the process this one
 * was forked from ECHILD. */
#ifndef WSRT_GATEWAY_H
#define WSRT_GATEWAY_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"

struct wsrt_gateway;

struct wsrt_gateway_limits {
    uint32_t hold_timeout_ms;      /* a connection that waits longer for its backend is closed */
    uint32_t handshake_timeout_ms; /* a SOCKS client that takes longer to say what it wants is closed */
    uint32_t connect_timeout_ms;   /* an instance that takes longer to accept is taken for not listening */
    uint32_t max_parked;           /* connections that may wait per backend; further ones are refused */
};

struct wsrt_gateway_traffic {
    uint64_t accepted;  /* connections taken from clients */
    uint64_t refused;   /* connections that we ended before they reached a server */
    uint64_t dropped;   /* connections in use that we cut because their backend was held or removed */
    uint64_t active;    /* connections that reach into an instance now */
    uint64_t parked;    /* connections that wait now */
    uint64_t bytes_in;  /* carried from clients to servers */
    uint64_t bytes_out; /* carried from servers to clients */
};

struct wsrt_gateway_route {
    char host[256];      /* name or address literal, as a SOCKS client asks for it */
    uint16_t port;        /* likewise */
    uint16_t target_port; /* inside the instance */
    int64_t backend;
};

/* Start a gateway. The calling thread's network namespace is the one to which its thread always returns. NULL on
 * failure. */
struct wsrt_gateway *wsrt_gateway_start(const struct wsrt_gateway_limits *limits, struct wsrt_error *err);

/* End the thread, every connection and every listener; may be called again. */
void wsrt_gateway_stop(struct wsrt_gateway *gateway);

/* Stop, and release the memory: no other call on this gateway may be under way. */
void wsrt_gateway_free(struct wsrt_gateway *gateway);

/* Returns the id of a new backend, which is held, or -1. */
int64_t wsrt_gateway_add_backend(struct wsrt_gateway *gateway, struct wsrt_error *err);

/* End the backend's connections, waiting ones included; listeners that lead to it refuse from now on. */
int wsrt_gateway_remove_backend(struct wsrt_gateway *gateway, int64_t backend, struct wsrt_error *err);

/* Let new connections wait. On return nothing is carried into or out of the old namespace any more: connections that
 * had carried data are reset, those that had not wait like new ones. The last sockets in there are closed at once
 * afterwards. */
int wsrt_gateway_hold(struct wsrt_gateway *gateway, int64_t backend, struct wsrt_error *err);

/* Hold, then carry the waiting connections and all later ones into the namespace of NETNS_FD, which is duplicated. */
int wsrt_gateway_open(struct wsrt_gateway *gateway, int64_t backend, int netns_fd, struct wsrt_error *err);

/* Listen on ADDRESS (an IPv4 or IPv6 literal) and PORT (0: the kernel chooses), in the calling thread's network
 * namespace, and lead to TARGET_PORT of BACKEND. Stores the port in BOUND_PORT and returns the listener's
 * id or -1. */
int64_t wsrt_gateway_listen(struct wsrt_gateway *gateway, int64_t backend, uint16_t target_port,
                            const char *address, uint16_t port, uint16_t *bound_port, struct wsrt_error *err);

/* Likewise, with a SOCKS5 server (no authentication, CONNECT only) that reaches what ROUTES lists, nothing else. */
int64_t wsrt_gateway_socks(struct wsrt_gateway *gateway, const struct wsrt_gateway_route *routes, size_t n_routes,
                           const char *address, uint16_t port, uint16_t *bound_port, struct wsrt_error *err);

/* Stop listening; connections already made go on. */
int wsrt_gateway_close_listener(struct wsrt_gateway *gateway, int64_t listener, struct wsrt_error *err);

/* Store the number of connections that this listener refused by itself: destinations outside its table, commands
 * other than CONNECT, clients that do not speak SOCKS5 or time out. */
int wsrt_gateway_listener_refused(struct wsrt_gateway *gateway, int64_t listener, uint64_t *refused,
                                  struct wsrt_error *err);

int wsrt_gateway_traffic(struct wsrt_gateway *gateway, struct wsrt_gateway_traffic *traffic,
                         struct wsrt_error *err);

int wsrt_gateway_backend_traffic(struct wsrt_gateway *gateway, int64_t backend,
                                 struct wsrt_gateway_traffic *traffic, struct wsrt_error *err);

#endif
