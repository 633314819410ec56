/* The steps that build the instance's view of the filesystem; all run as the host's root, in the new mount
 * namespace, before any process of the instance exists. */
#ifndef WSRT_INIT_ROOT_H
#define WSRT_INIT_ROOT_H

#include "../error.h"

int root_switch(int mount_fd, struct wsrt_error *err);
int root_mount(const char *type, const char *target, unsigned long flags, const char *data, struct wsrt_error *err);
int root_attach(int mount_fd, const char *target, struct wsrt_error *err);
int root_mask(const char *path, struct wsrt_error *err);
int root_read_only(const char *path, struct wsrt_error *err);
int root_devices(unsigned root_id, struct wsrt_error *err);

#endif
