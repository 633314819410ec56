/* One client, from being accepted to its end: it says what it wants (SOCKS), waits, reaches in, is relayed. */
#ifndef WSRT_GATEWAY_CONNECTION_H
#define WSRT_GATEWAY_CONNECTION_H

#include "gateway/backend.h"
#include "gateway/core.h"
#include "gateway/socks.h"
#include "gateway/stream.h"

enum connection_state {
    CONNECTION_HANDSHAKING,
    CONNECTION_PARKED,
    CONNECTION_CONNECTING,
    CONNECTION_RELAYING,
    CONNECTION_DEAD, /* to be freed once the events at hand are handled */
};

struct connection {
    enum connection_state state;
    bool owes_reply; /* a SOCKS client that has asked and not been answered */
    uint16_t target_port;
    struct endpoint client;
    struct endpoint server;
    struct stream request;
    struct stream response;
    uint64_t n_carried;
    int64_t listener;
    struct backend *backend;           /* NULL until it is known */
    struct socks_handshake *handshake; /* NULL but for a SOCKS client that has not said all yet */
    struct list sibling;               /* in one of the backend's lists, or the list of the dead */
    struct list busy;
    struct deadline deadline;
};

/* Take over the accepted CLIENT_FD; returns NULL, the descriptor closed, when memory runs out. */
struct connection *connection_new(struct wsrt_gateway *gateway, int client_fd, int64_t listener);

/* Lead a new connection to a backend, if that is still there. */
void connection_route(struct wsrt_gateway *gateway, struct connection *connection, int64_t backend,
                      uint16_t target_port);

/* Reach into the backend's namespace, or park where there is none yet. */
void connection_serve(struct wsrt_gateway *gateway, struct connection *connection);

void connection_park(struct wsrt_gateway *gateway, struct connection *connection);

bool connection_is_untouched(const struct connection *connection);

/* End a connection, in order (what was sent still arrives) or by resetting both sides. */
void connection_end(struct wsrt_gateway *gateway, struct connection *connection, bool does_reset);

void connection_count_refusal(struct wsrt_gateway *gateway, struct connection *connection);

/* End a connection that reached no server; a SOCKS client is told why. */
void connection_refuse(struct wsrt_gateway *gateway, struct connection *connection, enum socks_reply reason);

/* End a connection that did. */
void connection_drop(struct wsrt_gateway *gateway, struct connection *connection);

/* Give connections that were cut short in their turn another one. */
void connections_continue(struct wsrt_gateway *gateway);

/* End connections that have waited too long. */
void connections_expire(struct wsrt_gateway *gateway);

/* Free the dead ones. */
void connections_bury(struct wsrt_gateway *gateway);

/* End those that have no backend yet. */
void connections_end_handshakes(struct wsrt_gateway *gateway);

#endif
