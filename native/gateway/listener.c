#include "gateway/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cleanup.h"
#include "gateway/connection.h"
#include "gateway/handshake.h"

enum {
    BACKLOG = 4096,        /* the kernel caps it at net.core.somaxconn */
    ACCEPTS_PER_TURN = 64,
};

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static int parse_address(const char *text, uint16_t port, union address *address, struct wsrt_error *err)
{
    *address = (union address){0};
    if (inet_pton(AF_INET, text, &address->v4.sin_addr) == 1) {
        address->v4.sin_family = AF_INET;
        address->v4.sin_port = htons(port);
    } else if (inet_pton(AF_INET6, text, &address->v6.sin6_addr) == 1) {
        address->v6.sin6_family = AF_INET6;
        address->v6.sin6_port = htons(port);
    } else {
        return wsrt_fail_with(err, EINVAL, "parse address (IPv4 or IPv6 literal)", "%s", text);
    }
    return 0;
}

int listener_bind(const char *text, uint16_t port, uint16_t *bound_port, struct wsrt_error *err)
{
    union address address;
    if (parse_address(text, port, &address, err) < 0)
        return -1;
    CLEANUP_FD int fd = socket(address.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return wsrt_fail(err, "socket", "%s", text);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    /* Accepted sockets inherit these. */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &(int){1}, sizeof(int));
    if (bind(fd, &address.any, sizeof address) < 0)
        return wsrt_fail(err, "bind", "%s port %u", text, port);
    if (listen(fd, BACKLOG) < 0)
        return wsrt_fail(err, "listen", "%s port %u", text, port);
    if (getsockname(fd, &address.any, &(socklen_t){sizeof address}) < 0)
        return wsrt_fail(err, "getsockname", "%s port %u", text, port);
    *bound_port = ntohs(address.any.sa_family == AF_INET ? address.v4.sin_port : address.v6.sin6_port);
    return steal_fd(&fd);
}

static int listen_for(struct wsrt_gateway *gateway, struct listener *listener, uint32_t events, int operation)
{
    struct epoll_event event = {.events = events, .data.ptr = &listener->watch};
    return epoll_ctl(gateway->epoll_fd, operation, listener->fd, &event);
}

static void mute(struct wsrt_gateway *gateway, struct listener *listener)
{
    listen_for(gateway, listener, 0, EPOLL_CTL_MOD);
    list_append(&gateway->muted, &listener->muted);
}

static void welcome(struct wsrt_gateway *gateway, struct listener *listener, int client_fd)
{
    struct connection *connection = connection_new(gateway, client_fd, listener->id);
    if (connection == NULL)
        return;
    if (listener->is_socks)
        handshake_begin(gateway, connection);
    else
        connection_route(gateway, connection, listener->backend, listener->target_port);
}

static void on_listener_events(struct wsrt_gateway *gateway, struct watch *watch, uint32_t events)
{
    (void)events;
    struct listener *listener = CONTAINER_OF(watch, struct listener, watch);
    for (int i = 0; i < ACCEPTS_PER_TURN && gateway->retry_ms == 0; i++) {
        int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0)
            welcome(gateway, listener, fd);
        else if (errno == EAGAIN)
            return;
        else if (errno != ECONNABORTED && errno != EINTR)
            gateway_starve(gateway); /* whatever it is, asking again at once would spin */
    }
    if (gateway->retry_ms != 0)
        mute(gateway, listener);
}

int64_t listener_add(struct wsrt_gateway *gateway, struct listener *listener, struct wsrt_error *err)
{
    listener->watch.on_events = on_listener_events;
    list_init(&listener->muted);
    listener->id = registry_add(&gateway->listeners, listener);
    if (listener->id < 0)
        return wsrt_fail(err, "register", "listener");
    if (listen_for(gateway, listener, EPOLLIN, EPOLL_CTL_ADD) < 0) {
        wsrt_fail(err, "watch", "listener");
        registry_remove(&gateway->listeners, listener->id);
        return -1;
    }
    return listener->id;
}

void listener_free(struct wsrt_gateway *gateway, struct listener *listener)
{
    registry_remove(&gateway->listeners, listener->id);
    list_remove(&listener->muted);
    listen_for(gateway, listener, 0, EPOLL_CTL_DEL);
    shutdown(listener->fd, SHUT_RDWR); /* the port is free even while a child being started shares the socket */
    close(listener->fd);
    route_table_release(&listener->routes);
    free(listener);
}

void listeners_unmute(struct wsrt_gateway *gateway)
{
    while (!list_is_empty(&gateway->muted)) {
        struct listener *listener = CONTAINER_OF(gateway->muted.next, struct listener, muted);
        list_remove(&listener->muted);
        listen_for(gateway, listener, EPOLLIN, EPOLL_CTL_MOD);
    }
}
