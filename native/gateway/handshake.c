#include "gateway/handshake.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "gateway/listener.h"

void handshake_end(struct connection *connection)
{
    deadline_clear(&connection->deadline);
    free(connection->handshake);
    connection->handshake = NULL;
}

static bool send_whole(struct connection *connection, const uint8_t *bytes, size_t size)
{
    return send(connection->client.fd, bytes, size, MSG_NOSIGNAL) == (ssize_t)size;
}

bool handshake_reply(struct connection *connection, enum socks_reply code)
{
    uint8_t message[SOCKS_REPLY_SIZE];
    socks_write_reply(message, code);
    connection->owes_reply = false;
    return send_whole(connection, message, sizeof message);
}

void handshake_begin(struct wsrt_gateway *gateway, struct connection *connection)
{
    connection->handshake = calloc(1, sizeof *connection->handshake);
    if (connection->handshake == NULL)
        return connection_refuse(gateway, connection, SOCKS_GENERAL_FAILURE);
    deadline_set(&gateway->handshakes, &connection->deadline, gateway->now_ms);
}

void handshake_refuse(struct wsrt_gateway *gateway, struct connection *connection)
{
    connection_count_refusal(gateway, connection);
    connection_end(gateway, connection, true);
}

static void answer_greeting(struct wsrt_gateway *gateway, struct connection *connection)
{
    uint8_t choice[SOCKS_CHOICE_SIZE];
    bool is_acceptable = socks_choose_method(connection->handshake, choice);
    bool is_told = send_whole(connection, choice, sizeof choice);
    *connection->handshake = (struct socks_handshake){.is_greeted = true};
    if (is_acceptable && is_told)
        return;
    connection_count_refusal(gateway, connection);
    shutdown(connection->client.fd, SHUT_WR);
    connection_end(gateway, connection, !is_told);
}

static void follow_request(struct wsrt_gateway *gateway, struct connection *connection)
{
    char host[HOST_SIZE];
    uint16_t port = 0;
    enum socks_reply outcome = socks_read_request(connection->handshake, host, &port);
    connection->owes_reply = true;
    handshake_end(connection);
    if (outcome != SOCKS_SUCCEEDED)
        return connection_refuse(gateway, connection, outcome);
    struct listener *listener = registry_find(&gateway->listeners, connection->listener);
    if (listener == NULL)
        return connection_refuse(gateway, connection, SOCKS_GENERAL_FAILURE);
    const struct wsrt_gateway_route *route = route_table_find(&listener->routes, host, port);
    if (route == NULL)
        return connection_refuse(gateway, connection, SOCKS_NOT_ALLOWED);
    connection_route(gateway, connection, route->backend, route->target_port);
}

static void read_message(struct wsrt_gateway *gateway, struct connection *connection, size_t n_wanted)
{
    struct socks_handshake *handshake = connection->handshake;
    ssize_t n = recv(connection->client.fd, handshake->message + handshake->size, n_wanted, 0);
    if (n > 0)
        handshake->size += (uint16_t)n;
    else if (n < 0 && (errno == EAGAIN || errno == EINTR))
        connection->client.is_readable = errno == EINTR;
    else
        connection_end(gateway, connection, true);
}

void handshake_continue(struct wsrt_gateway *gateway, struct connection *connection)
{
    while (connection->state == CONNECTION_HANDSHAKING && connection->client.is_readable) {
        size_t n_wanted;
        switch (socks_progress(connection->handshake, &n_wanted)) {
        case SOCKS_NEEDS_MORE:
            read_message(gateway, connection, n_wanted);
            break;
        case SOCKS_NOT_SOCKS:
            handshake_refuse(gateway, connection);
            break;
        case SOCKS_COMPLETE:
            if (connection->handshake->is_greeted)
                follow_request(gateway, connection);
            else
                answer_greeting(gateway, connection);
            break;
        }
    }
}
