#include "gateway/socks.h"

#include <arpa/inet.h>
#include <string.h>

enum {
    VERSION = 5,
    NO_AUTHENTICATION = 0,
    NO_ACCEPTABLE_METHOD = 0xff,
    COMMAND_CONNECT = 1,
    ADDRESS_IPV4 = 1,
    ADDRESS_NAME = 3,
    ADDRESS_IPV6 = 4,
    HEADER_SIZE = 4, /* of a request: version, command, reserved, address type */
    PORT_SIZE = 2,
};

/* Returns how long the message is as far as its first bytes tell: at most its true length. */
static size_t known_size(const struct socks_handshake *handshake)
{
    const uint8_t *message = handshake->message;
    if (!handshake->is_greeted)
        return handshake->size < 2 ? 2 : 2 + (size_t)message[1];
    if (handshake->size < HEADER_SIZE + 1)
        return HEADER_SIZE + 1;
    switch (message[3]) {
    case ADDRESS_IPV4:
        return HEADER_SIZE + 4 + PORT_SIZE;
    case ADDRESS_IPV6:
        return HEADER_SIZE + 16 + PORT_SIZE;
    case ADDRESS_NAME:
        return HEADER_SIZE + 1 + (size_t)message[4] + PORT_SIZE;
    default: /* its length is anyone's guess: what has been read must do */
        return handshake->size;
    }
}

enum socks_progress socks_progress(const struct socks_handshake *handshake, size_t *n_wanted)
{
    if (handshake->size > 0 && handshake->message[0] != VERSION)
        return SOCKS_NOT_SOCKS;
    *n_wanted = known_size(handshake) - handshake->size;
    return *n_wanted > 0 ? SOCKS_NEEDS_MORE : SOCKS_COMPLETE;
}

bool socks_choose_method(const struct socks_handshake *handshake, uint8_t choice[SOCKS_CHOICE_SIZE])
{
    bool is_offered = memchr(handshake->message + 2, NO_AUTHENTICATION, handshake->message[1]) != NULL;
    choice[0] = VERSION;
    choice[1] = is_offered ? NO_AUTHENTICATION : NO_ACCEPTABLE_METHOD;
    return is_offered;
}

static enum socks_reply read_name(const uint8_t *field, char host[HOST_SIZE])
{
    size_t length = field[0];
    /* A name with a zero byte would be compared up to that byte only. */
    if (length == 0 || memchr(field + 1, '\0', length) != NULL)
        return SOCKS_NOT_ALLOWED;
    memcpy(host, field + 1, length);
    host[length] = '\0';
    return SOCKS_SUCCEEDED;
}

enum socks_reply socks_read_request(const struct socks_handshake *handshake, char host[HOST_SIZE], uint16_t *port)
{
    const uint8_t *message = handshake->message;
    const uint8_t *address = message + HEADER_SIZE;
    enum socks_reply outcome = SOCKS_SUCCEEDED;
    switch (message[3]) {
    case ADDRESS_IPV4:
        inet_ntop(AF_INET, address, host, HOST_SIZE);
        break;
    case ADDRESS_IPV6:
        inet_ntop(AF_INET6, address, host, HOST_SIZE);
        break;
    case ADDRESS_NAME:
        outcome = read_name(address, host);
        break;
    default:
        return SOCKS_ADDRESS_TYPE_NOT_SUPPORTED;
    }
    if (message[1] != COMMAND_CONNECT)
        return SOCKS_COMMAND_NOT_SUPPORTED;
    if (outcome != SOCKS_SUCCEEDED)
        return outcome;
    host_normalise(host);
    const uint8_t *port_field = message + handshake->size - PORT_SIZE;
    *port = (uint16_t)(port_field[0] << 8 | port_field[1]);
    return SOCKS_SUCCEEDED;
}

void socks_write_reply(uint8_t reply[SOCKS_REPLY_SIZE], enum socks_reply code)
{
    /* The bound address of the reply means nothing here; zeroes are what other servers send. */
    memset(reply, 0, SOCKS_REPLY_SIZE);
    reply[0] = VERSION;
    reply[1] = (uint8_t)code;
    reply[3] = ADDRESS_IPV4;
}
