/* The gateway's thread. */
#ifndef WSRT_GATEWAY_LOOP_H
#define WSRT_GATEWAY_LOOP_H

/* Body of the thread; takes and returns the `struct wsrt_gateway *`. Ends all connections, backends and listeners
 * once the gateway is stopping. */
void *loop_run(void *gateway);

#endif
