/* Sockets inside another network namespace, made by a thread that is back home before the call returns. */
#ifndef WSRT_CONNECT_H
#define WSRT_CONNECT_H

#include <stdint.h>

#include "error.h"

/* Make a non-blocking TCP socket in the namespace of NETNS_FD. HOME_NETNS_FD is the namespace that the calling
 * thread is in; the process aborts when the thread cannot return there, for everything it opened afterwards
 * would lie in the wrong namespace. Returns the descriptor or -1. */
int wsrt_socket_in_namespace(int netns_fd, int home_netns_fd, struct wsrt_error *err);

/* Begin to connect to 127.0.0.1:PORT inside the namespace of NETNS_FD; does not block. Returns the non-blocking
 * socket, which becomes writable when the outcome (SO_ERROR) is known, or -1. */
int wsrt_connect_in_namespace(int netns_fd, uint16_t port, struct wsrt_error *err);

#endif
