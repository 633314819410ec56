/* Queues of deadlines with one timeout each, so that the first set is the first due. */
#ifndef WSRT_GATEWAY_DEADLINE_H
#define WSRT_GATEWAY_DEADLINE_H

#include <stdint.h>

#include "gateway/list.h"

struct deadline {
    struct list node;
    uint64_t due_ms;
};

struct deadline_queue {
    struct list waiting;
    uint32_t timeout_ms;
};

static inline void deadline_set(struct deadline_queue *queue, struct deadline *deadline, uint64_t now_ms)
{
    deadline->due_ms = now_ms + queue->timeout_ms;
    list_append(&queue->waiting, &deadline->node);
}

static inline void deadline_clear(struct deadline *deadline)
{
    list_remove(&deadline->node);
}

/* Returns the deadline that is due first, or NULL. */
static inline struct deadline *deadline_first(const struct deadline_queue *queue)
{
    return list_is_empty(&queue->waiting) ? NULL : CONTAINER_OF(queue->waiting.next, struct deadline, node);
}

#endif
