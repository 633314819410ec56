/* Start our static program (native/init) as a new process and hand it a plan to carry out. */
#ifndef WSRT_SPAWN_H
#define WSRT_SPAWN_H

#include "error.h"

enum wsrt_spawn_flags {
    WSRT_SPAWN_NEW_INSTANCE = 1, /* new pid, mount, ipc, uts and time namespaces: the program is pid 1 */
};

struct wsrt_spawn {
    int program_fd;              /* the static program, readable */
    const unsigned char *plan;   /* see native/plan.h */
    unsigned plan_bytes;
    const int *fds;              /* handed over in this order: the plan names them by index */
    int n_fds;                   /* at most 200 */
    int cgroup_fd;               /* a cgroup v2 directory to be born in, or -1 */
    int flags;
};

struct wsrt_process {
    int pid;
    int pidfd;
    int control_fd; /* -1 for a new instance; where one that forked sends the exit status (an int) as it ends */
};

/* Start the program and wait until it has carried out the privileged part of its plan: what fails there is
 * this call's error, and the process is gone. Executing a program makes of any child one that raises SIGCHLD: the
 * embedding program may reap it before whoever waits for it by pidfd. */
int wsrt_spawn(const struct wsrt_spawn *request, struct wsrt_process *out, struct wsrt_error *err);

/* Send a signal that ends the process, wait for its end and close the descriptors; errno stays as it is. */
void wsrt_end_process(const struct wsrt_process *process, int signal_number);

#endif
