/* SOCKS5 (RFC 1928) as a pure function of the bytes read so far: no descriptor, no connection. */
#ifndef WSRT_GATEWAY_SOCKS_H
#define WSRT_GATEWAY_SOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/route.h"

enum socks_reply {
    SOCKS_SUCCEEDED = 0,
    SOCKS_GENERAL_FAILURE = 1,
    SOCKS_NOT_ALLOWED = 2,
    SOCKS_HOST_UNREACHABLE = 4,
    SOCKS_CONNECTION_REFUSED = 5,
    SOCKS_COMMAND_NOT_SUPPORTED = 7,
    SOCKS_ADDRESS_TYPE_NOT_SUPPORTED = 8,
};

enum {
    SOCKS_MESSAGE_SIZE = 262, /* the longest: a request with a name of 255 bytes */
    SOCKS_REPLY_SIZE = 10,
    SOCKS_CHOICE_SIZE = 2,
};

/* The message being read: first the client's greeting, then its request. */
struct socks_handshake {
    bool is_greeted;
    uint16_t size;
    uint8_t message[SOCKS_MESSAGE_SIZE];
};

enum socks_progress {
    SOCKS_NEEDS_MORE, /* *n_wanted bytes; never more than belong to the message, the rest is the stream's */
    SOCKS_COMPLETE,
    SOCKS_NOT_SOCKS, /* another protocol: not even a reply would be understood */
};

enum socks_progress socks_progress(const struct socks_handshake *handshake, size_t *n_wanted);

/* Write the answer to a complete greeting; returns whether the client offers to go without authentication. */
bool socks_choose_method(const struct socks_handshake *handshake, uint8_t choice[SOCKS_CHOICE_SIZE]);

/* Read a complete request; the host is normalised. Returns SOCKS_SUCCEEDED or what to reply instead. */
enum socks_reply socks_read_request(const struct socks_handshake *handshake, char host[HOST_SIZE], uint16_t *port);

void socks_write_reply(uint8_t reply[SOCKS_REPLY_SIZE], enum socks_reply code);

#endif
