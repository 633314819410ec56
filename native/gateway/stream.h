/* One direction of a connection: bytes from one socket to another, with half-close and back-pressure.
 *
 * By recv and send through a buffer that all connections share. Splicing bulk data through pipes was measured: a GiB
 * costs the thread 0.25 s (256 KiB pipes) or 0.20 s (1 MiB) instead of 0.33 s, but arrives no sooner, and needs
 * pipes by the connection, which count against the descriptors. */
#ifndef WSRT_GATEWAY_STREAM_H
#define WSRT_GATEWAY_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/core.h"

/* A connected socket, watched edge-triggered: what the last events said, until a call says otherwise. */
struct endpoint {
    struct watch watch;
    int fd; /* -1: none */
    bool is_readable;
    bool is_writable;
    bool has_hung_up; /* an end or error follows the data that is there to read */
    bool is_broken;   /* reset by its peer: an end of its data is not a proper end */
};

void endpoint_note(struct endpoint *endpoint, uint32_t events);

struct stream {
    uint8_t *backlog; /* what was read and the receiver has not taken yet; NULL: nothing */
    size_t backlog_start;
    size_t backlog_end;
    bool is_ended; /* the sender's end was read */
    bool is_done;  /* and the receiver has been told, or is gone */
};

enum stream_outcome {
    STREAM_WAITS,   /* for an event */
    STREAM_IS_BUSY, /* there is more to carry, but others want a turn */
    STREAM_BROKE,   /* the connection is to be reset */
};

/* Carry what can be carried through SCRATCH; adds the bytes that the receiver took to *CARRIED. */
enum stream_outcome stream_pump(struct stream *stream, struct endpoint *from, struct endpoint *to, uint8_t *scratch,
                                uint64_t *carried);

/* Returns whether nothing waits for the receiver, not even an end. */
bool stream_is_fresh(const struct stream *stream);

/* Forget what the receiver has not taken. */
void stream_release(struct stream *stream);

#endif
