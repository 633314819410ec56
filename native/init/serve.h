/* Be pid 1: start the services in order, reap, pass the stop signal on. */
#ifndef WSRT_INIT_SERVE_H
#define WSRT_INIT_SERVE_H

#include "service.h"

/* Runs until every service has ended; returns the exit status for pid 1. Reports on standard error. */
int serve(struct service *services, int n_services, int stop_signal);

#endif
