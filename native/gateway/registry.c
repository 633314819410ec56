#include "gateway/registry.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int64_t registry_add(struct registry *registry, void *object)
{
    if (registry->count == registry->capacity) {
        size_t capacity = registry->capacity == 0 ? 16 : 2 * registry->capacity;
        void *entries = reallocarray(registry->entries, capacity, sizeof *registry->entries);
        if (entries == NULL)
            return -1;
        registry->entries = entries;
        registry->capacity = capacity;
    }
    registry->entries[registry->count++] = (struct registry_entry){++registry->last_id, object};
    return registry->last_id;
}

static int compare(const void *key, const void *entry)
{
    int64_t id = *(const int64_t *)key;
    int64_t other = ((const struct registry_entry *)entry)->id;
    return (id > other) - (id < other);
}

static struct registry_entry *find_entry(const struct registry *registry, int64_t id)
{
    if (registry->count == 0)
        return NULL;
    return bsearch(&id, registry->entries, registry->count, sizeof *registry->entries, compare);
}

void *registry_find(const struct registry *registry, int64_t id)
{
    struct registry_entry *entry = find_entry(registry, id);
    if (entry == NULL) {
        errno = ENOENT;
        return NULL;
    }
    return entry->object;
}

void registry_remove(struct registry *registry, int64_t id)
{
    struct registry_entry *entry = find_entry(registry, id);
    if (entry == NULL)
        return;
    size_t n_after = registry->count - (size_t)(entry - registry->entries) - 1;
    memmove(entry, entry + 1, n_after * sizeof *entry);
    registry->count--;
}
