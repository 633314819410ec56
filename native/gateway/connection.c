#include "gateway/connection.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "connect.h"
#include "gateway/handshake.h"
#include "gateway/listener.h"

static void on_client_events(struct wsrt_gateway *gateway, struct watch *watch, uint32_t events);
static void on_server_events(struct wsrt_gateway *gateway, struct watch *watch, uint32_t events);

/* Edge-triggered and for good: a half-closed or blocked connection must neither spin nor cost epoll_ctl calls. */
static int watch_endpoint(struct wsrt_gateway *gateway, struct endpoint *endpoint)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = &endpoint->watch};
    return epoll_ctl(gateway->epoll_fd, EPOLL_CTL_ADD, endpoint->fd, &event);
}

/* A child being started elsewhere in this process may share our descriptors until its exec, so that close() alone
 * would neither end the connection nor take it out of the epoll set. Disconnecting (AF_UNSPEC) resets at once. */
static void close_endpoint(struct wsrt_gateway *gateway, struct endpoint *endpoint, bool does_reset)
{
    if (endpoint->fd < 0)
        return;
    epoll_ctl(gateway->epoll_fd, EPOLL_CTL_DEL, endpoint->fd, NULL);
    if (does_reset)
        connect(endpoint->fd, &(struct sockaddr){.sa_family = AF_UNSPEC}, sizeof(struct sockaddr));
    close(endpoint->fd);
    *endpoint = (struct endpoint){.watch = endpoint->watch, .fd = -1};
}

static void count(struct wsrt_gateway *gateway, struct connection *connection, uint64_t change)
{
    struct wsrt_gateway_traffic *backend = connection->backend != NULL ? &connection->backend->traffic : NULL;
    switch (connection->state) {
    case CONNECTION_PARKED:
        gateway->traffic.parked += change;
        backend->parked += change;
        break;
    case CONNECTION_CONNECTING:
    case CONNECTION_RELAYING:
        gateway->traffic.active += change;
        backend->active += change;
        break;
    default:
        break;
    }
}

static void set_state(struct wsrt_gateway *gateway, struct connection *connection, enum connection_state state)
{
    count(gateway, connection, UINT64_MAX);
    connection->state = state;
    count(gateway, connection, 1);
}

static void retire(struct wsrt_gateway *gateway, struct connection *connection)
{
    set_state(gateway, connection, CONNECTION_DEAD);
    stream_release(&connection->request);
    stream_release(&connection->response);
    handshake_end(connection);
    list_remove(&connection->busy);
    list_append(&gateway->dead, &connection->sibling);
}

void connection_end(struct wsrt_gateway *gateway, struct connection *connection, bool does_reset)
{
    close_endpoint(gateway, &connection->client, does_reset);
    close_endpoint(gateway, &connection->server, does_reset);
    retire(gateway, connection);
}

struct connection *connection_new(struct wsrt_gateway *gateway, int client_fd, int64_t listener)
{
    struct connection *connection = calloc(1, sizeof *connection);
    if (connection == NULL) {
        close(client_fd);
        return NULL;
    }
    connection->state = CONNECTION_HANDSHAKING;
    connection->listener = listener;
    connection->client = (struct endpoint){.watch = {on_client_events}, .fd = client_fd, .is_writable = true};
    connection->server = (struct endpoint){.watch = {on_server_events}, .fd = -1};
    list_init(&connection->sibling);
    list_init(&connection->busy);
    list_init(&connection->deadline.node);
    gateway->traffic.accepted++;
    if (watch_endpoint(gateway, &connection->client) < 0) {
        connection_end(gateway, connection, true);
        return NULL;
    }
    return connection;
}

void connection_count_refusal(struct wsrt_gateway *gateway, struct connection *connection)
{
    gateway->traffic.refused++;
    if (connection->backend != NULL) {
        connection->backend->traffic.refused++;
        return;
    }
    struct listener *listener = registry_find(&gateway->listeners, connection->listener);
    if (listener != NULL)
        listener->n_refused++;
}

/* A client without SOCKS learns by a reset: an orderly end could pass for an empty answer. */
void connection_refuse(struct wsrt_gateway *gateway, struct connection *connection, enum socks_reply reason)
{
    connection_count_refusal(gateway, connection);
    bool is_told = connection->owes_reply && handshake_reply(connection, reason);
    if (is_told)
        shutdown(connection->client.fd, SHUT_WR);
    connection_end(gateway, connection, !is_told);
}

/* A reset, for it is unambiguous: an orderly end would make a response cut short look whole where its length is not
 * given. Clients notice it on idle connections as they notice an end, and connect anew. The server's side is cut from
 * here on, too, but its socket closed only with the burial: waking the server is not to delay whoever holds. */
void connection_drop(struct wsrt_gateway *gateway, struct connection *connection)
{
    gateway->traffic.dropped++;
    connection->backend->traffic.dropped++;
    close_endpoint(gateway, &connection->client, true);
    retire(gateway, connection);
}

bool connection_is_untouched(const struct connection *connection)
{
    return connection->n_carried == 0 && stream_is_fresh(&connection->request) &&
           stream_is_fresh(&connection->response);
}

void connection_park(struct wsrt_gateway *gateway, struct connection *connection)
{
    struct backend *backend = connection->backend;
    list_append(&backend->parked, &connection->sibling);
    if (connection->state == CONNECTION_PARKED)
        return;
    close_endpoint(gateway, &connection->server, true);
    list_remove(&connection->busy);
    /* A client that left while it waited must not act on the state that comes next. That it might only have ended
     * its side, and still listen, cannot be told apart. */
    if (connection->client.has_hung_up)
        return connection_end(gateway, connection, true);
    if (backend->traffic.parked >= gateway->max_parked)
        return connection_refuse(gateway, connection, SOCKS_GENERAL_FAILURE);
    set_state(gateway, connection, CONNECTION_PARKED);
    deadline_set(&gateway->holds, &connection->deadline, gateway->now_ms);
}

static int connect_to_instance(struct wsrt_gateway *gateway, struct connection *connection)
{
    struct endpoint *server = &connection->server;
    server->fd = wsrt_socket_in_namespace(connection->backend->netns_fd, gateway->home_netns_fd, NULL);
    if (server->fd < 0)
        return -1;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(connection->target_port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(server->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (connect(server->fd, (struct sockaddr *)&address, sizeof address) < 0 && errno != EINPROGRESS)
        return -1;
    return watch_endpoint(gateway, server); /* not before: epoll reports an unconnected socket as hung up */
}

void connection_serve(struct wsrt_gateway *gateway, struct connection *connection)
{
    if (connection->backend->netns_fd < 0 || gateway->retry_ms != 0)
        return connection_park(gateway, connection);
    if (connect_to_instance(gateway, connection) == 0) {
        set_state(gateway, connection, CONNECTION_CONNECTING);
        list_append(&connection->backend->served, &connection->sibling);
        deadline_set(&gateway->connects, &connection->deadline, gateway->now_ms);
        return;
    }
    int error = errno;
    close_endpoint(gateway, &connection->server, true);
    if (gateway_is_starved_by(error)) {
        gateway_starve(gateway);
        connection_park(gateway, connection);
    } else {
        connection_refuse(gateway, connection, SOCKS_CONNECTION_REFUSED);
    }
}

void connection_route(struct wsrt_gateway *gateway, struct connection *connection, int64_t backend,
                      uint16_t target_port)
{
    connection->target_port = target_port;
    connection->backend = registry_find(&gateway->backends, backend);
    if (connection->backend == NULL)
        return connection_refuse(gateway, connection, SOCKS_HOST_UNREACHABLE);
    connection->backend->traffic.accepted++;
    connection_serve(gateway, connection);
}

static void add_carried(struct wsrt_gateway *gateway, struct connection *connection, uint64_t n_in, uint64_t n_out)
{
    connection->n_carried += n_in + n_out;
    gateway->traffic.bytes_in += n_in;
    gateway->traffic.bytes_out += n_out;
    connection->backend->traffic.bytes_in += n_in;
    connection->backend->traffic.bytes_out += n_out;
}

static void relay(struct wsrt_gateway *gateway, struct connection *connection)
{
    struct endpoint *client = &connection->client, *server = &connection->server;
    uint64_t n_in = 0, n_out = 0;
    enum stream_outcome in = stream_pump(&connection->request, client, server, gateway->scratch, &n_in);
    enum stream_outcome out = stream_pump(&connection->response, server, client, gateway->scratch, &n_out);
    add_carried(gateway, connection, n_in, n_out);
    if (in == STREAM_BROKE || out == STREAM_BROKE)
        connection_end(gateway, connection, true);
    else if (connection->request.is_done && connection->response.is_done)
        connection_end(gateway, connection, false);
    else if (in == STREAM_IS_BUSY || out == STREAM_IS_BUSY)
        list_append(&gateway->busy, &connection->busy);
}

static void on_connected(struct wsrt_gateway *gateway, struct connection *connection)
{
    int error = 0;
    getsockopt(connection->server.fd, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){sizeof error});
    if (error != 0)
        return connection_refuse(gateway, connection, SOCKS_CONNECTION_REFUSED);
    if (!connection->server.is_writable)
        return;
    deadline_clear(&connection->deadline);
    if (connection->owes_reply && !handshake_reply(connection, SOCKS_SUCCEEDED))
        return connection_end(gateway, connection, true);
    set_state(gateway, connection, CONNECTION_RELAYING);
    relay(gateway, connection);
}

static void on_client_events(struct wsrt_gateway *gateway, struct watch *watch, uint32_t events)
{
    struct connection *connection = CONTAINER_OF(watch, struct connection, client.watch);
    endpoint_note(&connection->client, events);
    switch (connection->state) {
    case CONNECTION_HANDSHAKING:
        handshake_continue(gateway, connection);
        break;
    case CONNECTION_PARKED:
        if (connection->client.has_hung_up)
            connection_end(gateway, connection, true);
        break;
    case CONNECTION_CONNECTING:
        if (connection->client.is_broken)
            connection_end(gateway, connection, true);
        break;
    case CONNECTION_RELAYING:
        relay(gateway, connection);
        break;
    case CONNECTION_DEAD:
        break;
    }
}

static void on_server_events(struct wsrt_gateway *gateway, struct watch *watch, uint32_t events)
{
    struct connection *connection = CONTAINER_OF(watch, struct connection, server.watch);
    endpoint_note(&connection->server, events);
    if (connection->state == CONNECTION_CONNECTING)
        on_connected(gateway, connection);
    else if (connection->state == CONNECTION_RELAYING)
        relay(gateway, connection);
}

void connections_continue(struct wsrt_gateway *gateway)
{
    struct list busy;
    list_init(&busy);
    list_take_all(&busy, &gateway->busy);
    while (!list_is_empty(&busy)) {
        struct connection *connection = CONTAINER_OF(busy.next, struct connection, busy);
        list_remove(&connection->busy);
        relay(gateway, connection);
    }
}

static struct connection *next_due(struct wsrt_gateway *gateway, struct deadline_queue *queue)
{
    struct deadline *deadline = deadline_first(queue);
    if (deadline == NULL || deadline->due_ms > gateway->now_ms)
        return NULL;
    return CONTAINER_OF(deadline, struct connection, deadline);
}

void connections_expire(struct wsrt_gateway *gateway)
{
    struct connection *connection;
    while ((connection = next_due(gateway, &gateway->handshakes)) != NULL)
        handshake_refuse(gateway, connection);
    while ((connection = next_due(gateway, &gateway->holds)) != NULL)
        connection_refuse(gateway, connection, SOCKS_HOST_UNREACHABLE);
    while ((connection = next_due(gateway, &gateway->connects)) != NULL)
        connection_refuse(gateway, connection, SOCKS_HOST_UNREACHABLE);
}

void connections_bury(struct wsrt_gateway *gateway)
{
    while (!list_is_empty(&gateway->dead)) {
        struct connection *connection = CONTAINER_OF(gateway->dead.next, struct connection, sibling);
        list_remove(&connection->sibling);
        close_endpoint(gateway, &connection->server, true);
        free(connection);
    }
}

void connections_end_handshakes(struct wsrt_gateway *gateway)
{
    struct deadline *deadline;
    while ((deadline = deadline_first(&gateway->handshakes)) != NULL)
        connection_end(gateway, CONTAINER_OF(deadline, struct connection, deadline), true);
}
