/* From the host's root to root of a user namespace with few capabilities, for good. */
#ifndef WSRT_INIT_CONFINE_H
#define WSRT_INIT_CONFINE_H

#include <stdint.h>

#include "../error.h"

/* Enter the user namespace, become its root, keep only KEPT_CAPABILITIES (bit mask), set no_new_privs and the
 * seccomp filter. */
int confine(int userns_fd, uint64_t kept_capabilities, struct wsrt_error *err);

/* Install the system call filter (seccomp.c). */
int confine_system_calls(struct wsrt_error *err);

#endif
