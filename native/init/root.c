#include "root.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { MAX_TERMINALS = 64 };

int root_switch(int mount_fd, struct wsrt_error *err)
{
    /* Nothing mounted here may travel back to the host. */
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return wsrt_fail(err, "make mounts private", "/");
    if (move_mount(mount_fd, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return wsrt_fail(err, "attach root", "/");
    /* pivot_root(".", ".") stacks the old root on the new one, so that no directory for it is needed. */
    if (fchdir(mount_fd) < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
        return wsrt_fail(err, "pivot root", "/");
    if (umount2(".", MNT_DETACH) < 0)
        return wsrt_fail(err, "unmount old root", "/");
    if (chdir("/") < 0)
        return wsrt_fail(err, "change directory", "/");
    return 0;
}

int root_mount(const char *type, const char *target, unsigned long flags, const char *data, struct wsrt_error *err)
{
    if (mount(type, target, type, flags, data) < 0)
        return wsrt_fail(err, "mount", "%s on %s", type, target);
    return 0;
}

int root_attach(int mount_fd, const char *target, struct wsrt_error *err)
{
    if (move_mount(mount_fd, "", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return wsrt_fail(err, "attach mount", "%s", target);
    return 0;
}

int root_mask(const char *path, struct wsrt_error *err)
{
    struct stat status;
    if (lstat(path, &status) < 0)
        return errno == ENOENT ? 0 : wsrt_fail(err, "inspect", "%s", path);
    if (S_ISDIR(status.st_mode))
        return root_mount("tmpfs", path, MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=0,mode=555", err);
    if (mount("/dev/null", path, NULL, MS_BIND, NULL) < 0)
        return wsrt_fail(err, "mask", "%s", path);
    return 0;
}

int root_read_only(const char *path, struct wsrt_error *err)
{
    struct mount_attr attributes = {
        .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC};
    if (mount(path, path, NULL, MS_BIND, NULL) < 0)
        return errno == ENOENT ? 0 : wsrt_fail(err, "bind on itself", "%s", path);
    if (mount_setattr(AT_FDCWD, path, 0, &attributes, sizeof attributes) < 0)
        return wsrt_fail(err, "make read-only", "%s", path);
    return 0;
}

static const struct {
    const char *path;
    unsigned major;
    unsigned minor;
} DEVICES[] = {
    {"/dev/null", 1, 3}, {"/dev/zero", 1, 5},    {"/dev/full", 1, 7},
    {"/dev/tty", 5, 0},  {"/dev/random", 1, 8},  {"/dev/urandom", 1, 9},
};

static const struct {
    const char *path;
    const char *target;
} LINKS[] = {
    {"/dev/fd", "/proc/self/fd"},       {"/dev/stdin", "/proc/self/fd/0"},
    {"/dev/stdout", "/proc/self/fd/1"}, {"/dev/stderr", "/proc/self/fd/2"},
    {"/dev/ptmx", "pts/ptmx"},
};

int root_devices(unsigned root_id, struct wsrt_error *err)
{
    char data[96];
    snprintf(data, sizeof data, "mode=755,size=256k,nr_inodes=512,uid=%u,gid=%u", root_id, root_id);
    if (root_mount("tmpfs", "/dev", MS_NOSUID | MS_NOEXEC, data, err) < 0)
        return -1;
    umask(0);
    for (size_t i = 0; i < sizeof DEVICES / sizeof *DEVICES; i++)
        if (mknod(DEVICES[i].path, S_IFCHR | 0666, makedev(DEVICES[i].major, DEVICES[i].minor)) < 0)
            return wsrt_fail(err, "make device", "%s", DEVICES[i].path);
        else if (chown(DEVICES[i].path, root_id, root_id) < 0)
            return wsrt_fail(err, "give device to root inside", "%s", DEVICES[i].path);
    for (size_t i = 0; i < sizeof LINKS / sizeof *LINKS; i++)
        if (symlink(LINKS[i].target, LINKS[i].path) < 0)
            return wsrt_fail(err, "make link", "%s", LINKS[i].path);
    if (mkdir("/dev/pts", 0755) < 0 || mkdir("/dev/shm", 01777) < 0)
        return wsrt_fail(err, "make directory", "/dev/pts, /dev/shm");
    if (chown("/dev/pts", root_id, root_id) < 0 || chown("/dev/shm", root_id, root_id) < 0)
        return wsrt_fail(err, "give directory to root inside", "/dev/pts, /dev/shm");
    /* All instances of devpts but the host's share one number of terminals (kernel.pty.max): a part for each. */
    snprintf(data, sizeof data, "newinstance,ptmxmode=0666,mode=620,gid=%u,max=%d", root_id + 5, MAX_TERMINALS);
    umask(022);
    return root_mount("devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC, data, err);
}
