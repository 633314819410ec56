/* The part of a SOCKS client's connection in which it says what it wants. */
#ifndef WSRT_GATEWAY_HANDSHAKE_H
#define WSRT_GATEWAY_HANDSHAKE_H

#include "gateway/connection.h"

void handshake_begin(struct wsrt_gateway *gateway, struct connection *connection);

/* Read on as far as the client has spoken, and lead it where it wants to go. */
void handshake_continue(struct wsrt_gateway *gateway, struct connection *connection);

void handshake_end(struct connection *connection);

/* End a connection whose client speaks another protocol, or too slowly. */
void handshake_refuse(struct wsrt_gateway *gateway, struct connection *connection);

/* Send the reply that the client waits for; returns whether that succeeded. */
bool handshake_reply(struct connection *connection, enum socks_reply code);

#endif
