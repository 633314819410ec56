/* The calls that other threads make, each a function that the gateway's thread runs. */
#include <errno.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cleanup.h"
#include "gateway/backend.h"
#include "gateway/core.h"
#include "gateway/gateway.h"
#include "gateway/listener.h"

static struct backend *find_backend(struct wsrt_gateway *gateway, int64_t id, struct wsrt_error *err)
{
    struct backend *backend = registry_find(&gateway->backends, id);
    if (backend == NULL)
        wsrt_fail(err, "find", "gateway backend %lld", (long long)id);
    return backend;
}

static struct listener *find_listener(struct wsrt_gateway *gateway, int64_t id, struct wsrt_error *err)
{
    struct listener *listener = registry_find(&gateway->listeners, id);
    if (listener == NULL)
        wsrt_fail(err, "find", "gateway listener %lld", (long long)id);
    return listener;
}

static int run_add_backend(struct wsrt_gateway *gateway, void *arguments, struct wsrt_error *err)
{
    int64_t *id = arguments;
    struct backend *backend = backend_new(gateway);
    if (backend == NULL)
        return wsrt_fail(err, "allocate", "gateway backend");
    *id = backend->id;
    return 0;
}

int64_t wsrt_gateway_add_backend(struct wsrt_gateway *gateway, struct wsrt_error *err)
{
    int64_t id;
    return calls_submit(&gateway->calls, run_add_backend, &id, err) < 0 ? -1 : id;
}

static int run_remove_backend(struct wsrt_gateway *gateway, void *arguments, struct wsrt_error *err)
{
    struct backend *backend = find_backend(gateway, *(int64_t *)arguments, err);
    if (backend == NULL)
        return -1;
    backend_free(gateway, backend);
    return 0;
}

int wsrt_gateway_remove_backend(struct wsrt_gateway *gateway, int64_t backend, struct wsrt_error *err)
{
    return calls_submit(&gateway->calls, run_remove_backend, &backend, err);
}

static int run_hold(struct wsrt_gateway *gateway, void *arguments, struct wsrt_error *err)
{
    struct backend *backend = find_backend(gateway, *(int64_t *)arguments, err);
    if (backend == NULL)
        return -1;
    backend_hold(gateway, backend);
    return 0;
}

int wsrt_gateway_hold(struct wsrt_gateway *gateway, int64_t backend, struct wsrt_error *err)
{
    return calls_submit(&gateway->calls, run_hold, &backend, err);
}

struct open_arguments {
    int64_t backend;
    int netns_fd; /* the backend's once the call has succeeded */
};

static int run_open(struct wsrt_gateway *gateway, void *arguments, struct wsrt_error *err)
{
    struct open_arguments *open_arguments = arguments;
    struct backend *backend = find_backend(gateway, open_arguments->backend, err);
    if (backend == NULL)
        return -1;
    backend_open(gateway, backend, open_arguments->netns_fd);
    return 0;
}

int wsrt_gateway_open(struct wsrt_gateway *gateway, int64_t backend, int netns_fd, struct wsrt_error *err)
{
    int type = ioctl(netns_fd, NS_GET_NSTYPE);
    if (type < 0)
        return wsrt_fail(err, "check network namespace", "descriptor %d", netns_fd);
    if (type != CLONE_NEWNET)
        return wsrt_fail_with(err, EINVAL, "check network namespace", "descriptor %d", netns_fd);
    CLEANUP_FD int duplicate = fcntl(netns_fd, F_DUPFD_CLOEXEC, 0);
    if (duplicate < 0)
        return wsrt_fail(err, "duplicate", "network namespace descriptor %d", netns_fd);
    struct open_arguments arguments = {backend, duplicate};
    if (calls_submit(&gateway->calls, run_open, &arguments, err) < 0)
        return -1;
    steal_fd(&duplicate);
    return 0;
}

struct listen_arguments {
    struct listener *listener;
    int64_t id;
};

static int run_listen(struct wsrt_gateway *gateway, void *arguments, struct wsrt_error *err)
{
    struct listen_arguments *listen_arguments = arguments;
    struct listener *listener = listen_arguments->listener;
    if (!listener->is_socks && find_backend(gateway, listener->backend, err) == NULL)
        return -1;
    for (size_t i = 0; i < listener->routes.count; i++)
        if (find_backend(gateway, listener->routes.routes[i].backend, err) == NULL)
            return -1;
    listen_arguments->id = listener_add(gateway, listener, err);
    return listen_arguments->id < 0 ? -1 : 0;
}

/* Takes over LISTENER's routes, also on failure. */
static int64_t listen_at(struct wsrt_gateway *gateway, struct listener prepared, const char *address, uint16_t port,
                         uint16_t *bound_port, struct wsrt_error *err)
{
    prepared.fd = listener_bind(address, port, bound_port, err);
    struct listen_arguments arguments = {.listener = prepared.fd < 0 ? NULL : malloc(sizeof prepared)};
    if (arguments.listener != NULL) {
        *arguments.listener = prepared;
        if (calls_submit(&gateway->calls, run_listen, &arguments, err) == 0)
            return arguments.id;
    }
    wsrt_fail(err, "allocate", "gateway listener");
    free(arguments.listener);
    if (prepared.fd >= 0)
        close(prepared.fd);
    route_table_release(&prepared.routes);
    return -1;
}

int64_t wsrt_gateway_listen(struct wsrt_gateway *gateway, int64_t backend, uint16_t target_port,
                            const char *address, uint16_t port, uint16_t *bound_port, struct wsrt_error *err)
{
    if (target_port == 0)
        return wsrt_fail_with(err, EINVAL, "check target port (not 0)", "gateway backend %lld", (long long)backend);
    struct listener prepared = {.backend = backend, .target_port = target_port};
    return listen_at(gateway, prepared, address, port, bound_port, err);
}

int64_t wsrt_gateway_socks(struct wsrt_gateway *gateway, const struct wsrt_gateway_route *routes, size_t n_routes,
                           const char *address, uint16_t port, uint16_t *bound_port, struct wsrt_error *err)
{
    struct listener prepared = {.is_socks = true};
    if (route_table_init(&prepared.routes, routes, n_routes, err) < 0)
        return -1;
    return listen_at(gateway, prepared, address, port, bound_port, err);
}

static int run_close_listener(struct wsrt_gateway *gateway, void *arguments, struct wsrt_error *err)
{
    struct listener *listener = find_listener(gateway, *(int64_t *)arguments, err);
    if (listener == NULL)
        return -1;
    listener_free(gateway, listener);
    return 0;
}

int wsrt_gateway_close_listener(struct wsrt_gateway *gateway, int64_t listener, struct wsrt_error *err)
{
    return calls_submit(&gateway->calls, run_close_listener, &listener, err);
}

struct query {
    int64_t id;
    void *answer;
};

static int run_listener_refused(struct wsrt_gateway *gateway, void *arguments, struct wsrt_error *err)
{
    struct query *query = arguments;
    struct listener *listener = find_listener(gateway, query->id, err);
    if (listener == NULL)
        return -1;
    *(uint64_t *)query->answer = listener->n_refused;
    return 0;
}

int wsrt_gateway_listener_refused(struct wsrt_gateway *gateway, int64_t listener, uint64_t *refused,
                                  struct wsrt_error *err)
{
    struct query query = {listener, refused};
    return calls_submit(&gateway->calls, run_listener_refused, &query, err);
}

static int run_traffic(struct wsrt_gateway *gateway, void *arguments, struct wsrt_error *err)
{
    (void)err;
    *(struct wsrt_gateway_traffic *)arguments = gateway->traffic;
    return 0;
}

int wsrt_gateway_traffic(struct wsrt_gateway *gateway, struct wsrt_gateway_traffic *traffic, struct wsrt_error *err)
{
    return calls_submit(&gateway->calls, run_traffic, traffic, err);
}

static int run_backend_traffic(struct wsrt_gateway *gateway, void *arguments, struct wsrt_error *err)
{
    struct query *query = arguments;
    struct backend *backend = find_backend(gateway, query->id, err);
    if (backend == NULL)
        return -1;
    *(struct wsrt_gateway_traffic *)query->answer = backend->traffic;
    return 0;
}

int wsrt_gateway_backend_traffic(struct wsrt_gateway *gateway, int64_t backend,
                                 struct wsrt_gateway_traffic *traffic, struct wsrt_error *err)
{
    struct query query = {backend, traffic};
    return calls_submit(&gateway->calls, run_backend_traffic, &query, err);
}
