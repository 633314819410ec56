/* Doubly linked lists through a member of the elements; a node that is in no list points to itself. */
#ifndef WSRT_GATEWAY_LIST_H
#define WSRT_GATEWAY_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *previous;
    struct list *next;
};

#define CONTAINER_OF(pointer, type, member) ((type *)(void *)((char *)(pointer) - offsetof(type, member)))

static inline void list_init(struct list *list)
{
    list->previous = list->next = list;
}

static inline bool list_is_empty(const struct list *list)
{
    return list->next == list;
}

static inline void list_remove(struct list *node)
{
    node->previous->next = node->next;
    node->next->previous = node->previous;
    list_init(node);
}

/* Append NODE, taking it out of the list that it is in. */
static inline void list_append(struct list *list, struct list *node)
{
    list_remove(node);
    node->previous = list->previous;
    node->next = list;
    list->previous->next = node;
    list->previous = node;
}

/* Move all nodes of FROM to the empty list TO. */
static inline void list_take_all(struct list *to, struct list *from)
{
    list_append(from, to);
    list_remove(from);
}

#endif
