/* Ids for objects: never reused, so that a stale id is unknown instead of another object's. */
#ifndef WSRT_GATEWAY_REGISTRY_H
#define WSRT_GATEWAY_REGISTRY_H

#include <stddef.h>
#include <stdint.h>

struct registry_entry {
    int64_t id;
    void *object;
};

/* Zeroed is empty. The entries are in the order of their ids. */
struct registry {
    struct registry_entry *entries;
    size_t count;
    size_t capacity;
    int64_t last_id;
};

/* Returns the object's id (> 0), or -1 with errno when memory runs out. */
int64_t registry_add(struct registry *registry, void *object);

/* Returns the object, or NULL with errno ENOENT. */
void *registry_find(const struct registry *registry, int64_t id);

void registry_remove(struct registry *registry, int64_t id);

#endif
