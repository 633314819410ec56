#include "gateway/backend.h"

#include <stdlib.h>
#include <unistd.h>

#include "gateway/connection.h"

struct backend *backend_new(struct wsrt_gateway *gateway)
{
    struct backend *backend = calloc(1, sizeof *backend);
    if (backend == NULL)
        return NULL;
    backend->netns_fd = -1;
    list_init(&backend->parked);
    list_init(&backend->served);
    backend->id = registry_add(&gateway->backends, backend);
    if (backend->id < 0) {
        free(backend);
        return NULL;
    }
    return backend;
}

static void leave_namespace(struct backend *backend)
{
    if (backend->netns_fd >= 0)
        close(backend->netns_fd);
    backend->netns_fd = -1;
}

static struct connection *first_of(struct list *list)
{
    return CONTAINER_OF(list->next, struct connection, sibling);
}

void backend_free(struct wsrt_gateway *gateway, struct backend *backend)
{
    leave_namespace(backend);
    while (!list_is_empty(&backend->served))
        connection_drop(gateway, first_of(&backend->served));
    while (!list_is_empty(&backend->parked))
        connection_refuse(gateway, first_of(&backend->parked), SOCKS_HOST_UNREACHABLE);
    registry_remove(&gateway->backends, backend->id);
    free(backend);
}

void backend_hold(struct wsrt_gateway *gateway, struct backend *backend)
{
    leave_namespace(backend);
    while (!list_is_empty(&backend->served)) {
        struct connection *connection = first_of(&backend->served);
        /* Neither side has seen a byte of the other: the client may as well meet the next state. */
        if (connection_is_untouched(connection))
            connection_park(gateway, connection);
        else
            connection_drop(gateway, connection);
    }
}

void backend_open(struct wsrt_gateway *gateway, struct backend *backend, int netns_fd)
{
    backend_hold(gateway, backend);
    backend->netns_fd = netns_fd;
    backend_serve_parked(gateway, backend);
}

void backend_serve_parked(struct wsrt_gateway *gateway, struct backend *backend)
{
    struct list waiting;
    list_init(&waiting);
    list_take_all(&waiting, &backend->parked);
    while (!list_is_empty(&waiting))
        connection_serve(gateway, first_of(&waiting));
}
