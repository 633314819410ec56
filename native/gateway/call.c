#include "gateway/call.h"

#include <errno.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Lies on the stack of the caller, who waits: not to be touched once it is done. */
struct call {
    struct call *next;
    call_function *function;
    void *arguments;
    struct wsrt_error *err;
    int result;
    bool done;
};

int calls_init(struct call_queue *queue, struct wsrt_error *err)
{
    queue->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (queue->wake_fd < 0)
        return wsrt_fail(err, "eventfd", "gateway");
    pthread_mutex_init(&queue->mutex, NULL);
    pthread_cond_init(&queue->some_done, NULL);
    queue->first = NULL;
    queue->last_link = &queue->first;
    queue->refuses = false;
    queue->owner = getpid();
    return 0;
}

void calls_release(struct call_queue *queue)
{
    pthread_cond_destroy(&queue->some_done);
    pthread_mutex_destroy(&queue->mutex);
    if (queue->wake_fd >= 0)
        close(queue->wake_fd);
}

static int fail_shut_down(struct wsrt_error *err)
{
    return wsrt_fail_with(err, ESHUTDOWN, "call", "stopped gateway");
}

bool calls_are_orphaned(const struct call_queue *queue)
{
    return queue->owner != getpid();
}

int calls_submit(struct call_queue *queue, call_function *function, void *arguments, struct wsrt_error *err)
{
    /* Before the mutex, which may have been held as the process forked. */
    if (calls_are_orphaned(queue))
        return wsrt_fail_with(err, ECHILD, "call", "gateway of the process that this one was forked from");
    struct call call = {.function = function, .arguments = arguments, .err = err};
    pthread_mutex_lock(&queue->mutex);
    if (queue->refuses) {
        pthread_mutex_unlock(&queue->mutex);
        return fail_shut_down(err);
    }
    *queue->last_link = &call;
    queue->last_link = &call.next;
    eventfd_write(queue->wake_fd, 1);
    while (!call.done)
        pthread_cond_wait(&queue->some_done, &queue->mutex);
    pthread_mutex_unlock(&queue->mutex);
    return call.result;
}

static struct call *take_all(struct call_queue *queue)
{
    struct call *first = queue->first;
    queue->first = NULL;
    queue->last_link = &queue->first;
    return first;
}

void calls_run(struct call_queue *queue, struct wsrt_gateway *gateway)
{
    pthread_mutex_lock(&queue->mutex);
    for (struct call *call = take_all(queue), *next; call != NULL; call = next) {
        next = call->next;
        pthread_mutex_unlock(&queue->mutex);
        int result = call->function(gateway, call->arguments, call->err);
        pthread_mutex_lock(&queue->mutex);
        call->result = result;
        call->done = true;
        pthread_cond_broadcast(&queue->some_done);
    }
    pthread_mutex_unlock(&queue->mutex);
}

void calls_refuse(struct call_queue *queue)
{
    pthread_mutex_lock(&queue->mutex);
    queue->refuses = true;
    /* A stopped gateway may live on as long as somebody refers to it: it is to hold no descriptor then. */
    close(queue->wake_fd);
    queue->wake_fd = -1;
    for (struct call *call = take_all(queue), *next; call != NULL; call = next) {
        next = call->next;
        call->result = fail_shut_down(call->err);
        call->done = true;
    }
    pthread_cond_broadcast(&queue->some_done);
    pthread_mutex_unlock(&queue->mutex);
}
