#include "gateway/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum { TURN_SIZE = 8 * SCRATCH_SIZE };

void endpoint_note(struct endpoint *endpoint, uint32_t events)
{
    const uint32_t hang_up = EPOLLRDHUP | EPOLLHUP | EPOLLERR;
    endpoint->is_readable |= (events & (EPOLLIN | hang_up)) != 0;
    endpoint->is_writable |= (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0;
    endpoint->has_hung_up |= (events & hang_up) != 0;
    endpoint->is_broken |= (events & EPOLLERR) != 0;
}

/* Returns how many bytes the receiver took. */
static size_t put(struct endpoint *to, const uint8_t *bytes, size_t size)
{
    ssize_t n = send(to->fd, bytes, size, MSG_NOSIGNAL);
    if (n >= 0)
        return (size_t)n;
    if (errno == EAGAIN)
        to->is_writable = false;
    else if (errno != EINTR)
        to->is_broken = true;
    return 0;
}

static ssize_t get(struct endpoint *from, uint8_t *bytes, size_t size)
{
    ssize_t n = recv(from->fd, bytes, size, 0);
    /* A short read has emptied the socket, and an event will tell of more; but none will tell again of an end. */
    if ((n < 0 && errno == EAGAIN) || (n > 0 && (size_t)n < size && !from->has_hung_up))
        from->is_readable = false;
    return n;
}

static bool keep(struct stream *stream, const uint8_t *bytes, size_t size)
{
    stream->backlog = malloc(size);
    if (stream->backlog == NULL)
        return false;
    memcpy(stream->backlog, bytes, size);
    stream->backlog_start = 0;
    stream->backlog_end = size;
    return true;
}

/* Returns what reading did: the number of bytes, 0 at the end, -1 with errno. */
static ssize_t copy(struct stream *stream, struct endpoint *from, struct endpoint *to, uint8_t *scratch,
                    uint64_t *carried)
{
    ssize_t n = get(from, scratch, SCRATCH_SIZE);
    if (n <= 0)
        return n;
    size_t size = (size_t)n;
    size_t n_taken = put(to, scratch, size);
    *carried += n_taken;
    if (n_taken < size && !to->is_broken && !keep(stream, scratch + n_taken, size - n_taken))
        return -1;
    return n;
}

static size_t flush(struct stream *stream, struct endpoint *to)
{
    size_t n = put(to, stream->backlog + stream->backlog_start, stream->backlog_end - stream->backlog_start);
    stream->backlog_start += n;
    if (stream->backlog_start == stream->backlog_end)
        stream_release(stream);
    return n;
}

/* The receiver is gone: what else the sender has is lost, but what the receiver sent before may still come. */
static enum stream_outcome give_up(struct stream *stream)
{
    stream_release(stream);
    stream->is_ended = stream->is_done = true;
    return STREAM_WAITS;
}

static enum stream_outcome pass_on_end(struct stream *stream, struct endpoint *to)
{
    if (!stream->is_done)
        shutdown(to->fd, SHUT_WR);
    stream->is_done = true;
    return STREAM_WAITS;
}

enum stream_outcome stream_pump(struct stream *stream, struct endpoint *from, struct endpoint *to, uint8_t *scratch,
                                uint64_t *carried)
{
    for (size_t n_read = 0;;) {
        if (to->is_broken)
            return give_up(stream);
        if (stream->backlog != NULL) {
            if (!to->is_writable)
                return STREAM_WAITS;
            *carried += flush(stream, to);
            continue;
        }
        if (stream->is_ended)
            return pass_on_end(stream, to);
        if (!from->is_readable || !to->is_writable)
            return STREAM_WAITS;
        if (n_read >= TURN_SIZE)
            return STREAM_IS_BUSY;

        ssize_t n = copy(stream, from, to, scratch, carried);
        if (n > 0)
            n_read += (size_t)n;
        else if (n == 0 && !from->is_broken)
            stream->is_ended = true;
        else if (n == 0 || (errno != EAGAIN && errno != EINTR))
            return STREAM_BROKE;
    }
}

bool stream_is_fresh(const struct stream *stream)
{
    return stream->backlog == NULL && !stream->is_ended;
}

void stream_release(struct stream *stream)
{
    free(stream->backlog);
    stream->backlog = NULL;
}
