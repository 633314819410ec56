#include "gateway/route.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void host_normalise(char host[HOST_SIZE])
{
    for (char *c = host; *c != '\0'; c++)
        if (*c >= 'A' && *c <= 'Z') /* tolower() depends on the locale */
            *c += 'a' - 'A';
    size_t length = strlen(host);
    if (length > 1 && host[length - 1] == '.')
        host[length - 1] = '\0';
    unsigned char address[sizeof(struct in6_addr)];
    if (inet_pton(AF_INET, host, address) == 1)
        inet_ntop(AF_INET, address, host, HOST_SIZE);
    else if (inet_pton(AF_INET6, host, address) == 1)
        inet_ntop(AF_INET6, address, host, HOST_SIZE);
}

static int check_route(const struct wsrt_gateway_route *route, struct wsrt_error *err)
{
    size_t length = strnlen(route->host, sizeof route->host);
    if (length == 0 || length == sizeof route->host)
        return wsrt_fail_with(err, EINVAL, "check host (1 to 255 bytes)", "SOCKS table");
    for (size_t i = 0; i < length; i++)
        if (route->host[i] <= ' ' || route->host[i] > '~')
            return wsrt_fail_with(err, EINVAL, "check host (printable ASCII)", "%s", route->host);
    if (route->port == 0 || route->target_port == 0)
        return wsrt_fail_with(err, EINVAL, "check port (not 0)", "%s:%u to port %u", route->host, route->port,
                              route->target_port);
    return 0;
}

int route_table_init(struct route_table *table, const struct wsrt_gateway_route *routes, size_t count,
                     struct wsrt_error *err)
{
    *table = (struct route_table){.routes = calloc(count > 0 ? count : 1, sizeof *routes)};
    if (table->routes == NULL)
        return wsrt_fail(err, "allocate", "SOCKS table of %zu entries", count);
    for (size_t i = 0; i < count; i++) {
        if (check_route(&routes[i], err) < 0)
            goto fail;
        struct wsrt_gateway_route *route = &table->routes[i];
        *route = routes[i];
        host_normalise(route->host);
        if (route_table_find(table, route->host, route->port) != NULL) {
            wsrt_fail_with(err, EEXIST, "add SOCKS destination", "%s:%u", route->host, route->port);
            goto fail;
        }
        table->count++;
    }
    return 0;
fail:
    route_table_release(table);
    return -1;
}

void route_table_release(struct route_table *table)
{
    free(table->routes);
    *table = (struct route_table){0};
}

const struct wsrt_gateway_route *route_table_find(const struct route_table *table, const char *host, uint16_t port)
{
    for (size_t i = 0; i < table->count; i++)
        if (table->routes[i].port == port && strcmp(table->routes[i].host, host) == 0)
            return &table->routes[i];
    return NULL;
}
