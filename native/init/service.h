/* A program of the instance, as a SERVICE or EXEC step describes it.
 *
 * numbers: uid, gid, once, wait kind, wait port, wait time-out (ms), fds of stdin, stdout and stderr (-1: /dev/null),
 *          n_arguments, n_environment, n_groups, group*
 * texts:   name, directory, wait path, argument*, environment* */
#ifndef WSRT_INIT_SERVICE_H
#define WSRT_INIT_SERVICE_H

#include <sys/types.h>

#include "plan.h"

enum service_wait { WAIT_NONE, WAIT_TCP, WAIT_UNIX, WAIT_PATH };

struct service {
    const char *name;
    uid_t uid;
    gid_t gid;
    gid_t groups[64];
    int n_groups;
    int runs_once;
    enum service_wait wait;
    int wait_port;
    const char *wait_path;
    int wait_timeout_ms;
    int stdio[3];
    const char *directory;
    char **arguments;   /* NULL-terminated, own allocation; the texts belong to the plan */
    char **environment;
    pid_t pid;          /* 0 before the start and after the end */
    int exit_status;    /* as wait() gives it, once it has ended */
};

int service_decode(const struct plan *plan, const struct step *step, struct service *service, struct wsrt_error *err);

/* Fork and execute the service; returns its pid, or -1. A program that cannot be executed ends with status 127
 * after a line on its standard error. */
pid_t service_start(struct service *service);

/* Become the service's user and program; returns only on failure, after a line on standard error. */
void service_become(const struct service *service);

/* Whether what the service's `wait` names is there now. */
int service_is_there(const struct service *service);

#endif
