/* A SOCKS listener's table of destinations: (host, port) as clients ask, to (backend, port inside). */
#ifndef WSRT_GATEWAY_ROUTE_H
#define WSRT_GATEWAY_ROUTE_H

#include <stddef.h>
#include <stdint.h>

#include "gateway/gateway.h"

struct route_table {
    struct wsrt_gateway_route *routes;
    size_t count;
};

enum { HOST_SIZE = 256 };

/* Bring a host to the one form in which hosts are compared: lower case, no final dot, the shortest form of an
 * address literal. */
void host_normalise(char host[HOST_SIZE]);

int route_table_init(struct route_table *table, const struct wsrt_gateway_route *routes, size_t count,
                     struct wsrt_error *err);

void route_table_release(struct route_table *table);

/* Returns the route to a normalised host, or NULL. */
const struct wsrt_gateway_route *route_table_find(const struct route_table *table, const char *host, uint16_t port);

#endif
