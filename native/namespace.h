/* Namespaces made ahead of an instance, held by descriptor: nothing is pinned in a filesystem. */
#ifndef WSRT_NAMESPACE_H
#define WSRT_NAMESPACE_H

#include "error.h"

/* A user namespace whose ids 0..COUNT-1 are the host's FIRST_ID..FIRST_ID+COUNT-1, users and groups alike, and whose
 * owner is FIRST_ID. PROGRAM_FD is the static program, which makes it: a change of user in a process that shares our
 * memory would deny us core dumps. */
int wsrt_namespace_user(int program_fd, unsigned first_id, unsigned count, struct wsrt_error *err);

/* A network namespace owned by the initial user namespace: loopback up, no other device, any user may bind
 * ports below 1024. */
int wsrt_namespace_network(struct wsrt_error *err);

#endif
