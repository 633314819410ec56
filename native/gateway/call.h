/* Calls from other threads, run one after the other by the gateway's thread, so that nothing else needs a lock. */
#ifndef WSRT_GATEWAY_CALL_H
#define WSRT_GATEWAY_CALL_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "error.h"

struct wsrt_gateway;
struct call;

typedef int call_function(struct wsrt_gateway *gateway, void *arguments, struct wsrt_error *err);

struct call_queue {
    pthread_mutex_t mutex;
    pthread_cond_t some_done;
    struct call *first;
    struct call **last_link;
    int wake_fd;  /* an eventfd: readable while calls wait */
    pid_t owner;  /* a process forked from it has the memory, but no thread that would run a call */
    bool refuses; /* the thread has ended, or is about to */
};

int calls_init(struct call_queue *queue, struct wsrt_error *err);
void calls_release(struct call_queue *queue);

/* Returns whether this is a process forked from the one that the thread belongs to. */
bool calls_are_orphaned(const struct call_queue *queue);

/* Have FUNCTION run by the gateway's thread and wait for its result. */
int calls_submit(struct call_queue *queue, call_function *function, void *arguments, struct wsrt_error *err);

/* Run what waits: for the gateway's thread. */
void calls_run(struct call_queue *queue, struct wsrt_gateway *gateway);

/* Fail what waits and all later calls with ESHUTDOWN: for the gateway's thread as it ends. */
void calls_refuse(struct call_queue *queue);

#endif
