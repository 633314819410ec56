#include "subvolume.h"

#include <errno.h>
#include <linux/btrfs.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "beneath.h"

#define SUBVOLUME_INODE 256 /* BTRFS_FIRST_FREE_OBJECTID: the root directory of every subvolume */

static bool is_on_btrfs(int fd)
{
    struct statfs filesystem;
    return fstatfs(fd, &filesystem) == 0 && filesystem.f_type == BTRFS_SUPER_MAGIC;
}

int wsrt_create_subvolume(int parent_fd, const char *name, struct wsrt_error *err)
{
    struct btrfs_ioctl_vol_args args = {0};
    if (!is_single_name(name))
        return wsrt_fail_with(err, EINVAL, "create subvolume", "\"%.100s\" (not a single name)", name);
    if (!is_on_btrfs(parent_fd))
        return wsrt_fail_with(err, EOPNOTSUPP, "create subvolume", "%s (not on btrfs)", name);
    memcpy(args.name, name, strlen(name));
    if (ioctl(parent_fd, BTRFS_IOC_SUBVOL_CREATE, &args) < 0)
        return wsrt_fail(err, "create subvolume", "%s", name);
    return 0;
}

int wsrt_snapshot_subvolume(int source_fd, int dest_parent_fd, const char *name, struct wsrt_error *err)
{
    struct btrfs_ioctl_vol_args_v2 args = {.fd = source_fd};
    struct stat status;
    if (!is_single_name(name))
        return wsrt_fail_with(err, EINVAL, "snapshot subvolume", "\"%.100s\" (not a single name)", name);
    if (!is_on_btrfs(source_fd) || fstat(source_fd, &status) < 0 || status.st_ino != SUBVOLUME_INODE)
        return wsrt_fail_with(err, EINVAL, "snapshot subvolume", "%s (the source is no subvolume)", name);
    memcpy(args.name, name, strlen(name));
    if (ioctl(dest_parent_fd, BTRFS_IOC_SNAP_CREATE_V2, &args) < 0)
        return wsrt_fail(err, "snapshot subvolume", "%s", name);
    return 0;
}
