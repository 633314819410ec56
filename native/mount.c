#include "mount.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"

#define WRITABLE "writable"

/* As wsrt_fail, on PATH below DIR_FD. */
static int fail_below(int dir_fd, const char *path, const char *step, struct wsrt_error *err)
{
    int code = errno;
    char link[32], directory[200];
    snprintf(link, sizeof link, "/proc/self/fd/%d", dir_fd);
    ssize_t length = readlink(link, directory, sizeof directory - 1);
    directory[length < 0 ? 0 : length] = '\0';
    return wsrt_fail_with(err, code, step, "%s%s%s", length < 0 ? link : directory, *path ? "/" : "", path);
}

int wsrt_mount_clone(int dir_fd, const char *path, int userns_fd, int flags, struct wsrt_error *err)
{
    unsigned tree_flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH;
    unsigned attribute_flags = AT_EMPTY_PATH;
    /* Private, or what the host mounts below PATH later would appear inside too, and writable. */
    struct mount_attr attributes = {
        .attr_set = MOUNT_ATTR_NOATIME, .attr_clr = MOUNT_ATTR__ATIME, .propagation = MS_PRIVATE};

    if (flags & WSRT_MOUNT_RECURSIVE) {
        tree_flags |= AT_RECURSIVE;
        attribute_flags |= AT_RECURSIVE;
    }
    if (flags & WSRT_MOUNT_READ_ONLY)
        attributes.attr_set |= MOUNT_ATTR_RDONLY;
    if (flags & WSRT_MOUNT_NO_DEV)
        attributes.attr_set |= MOUNT_ATTR_NODEV;
    if (flags & WSRT_MOUNT_NO_SUID)
        attributes.attr_set |= MOUNT_ATTR_NOSUID;
    if (userns_fd >= 0) {
        attributes.attr_set |= MOUNT_ATTR_IDMAP;
        attributes.userns_fd = (__u64)userns_fd;
    }

    CLEANUP_FD int mount_fd = open_tree(dir_fd, path, tree_flags);
    if (mount_fd < 0)
        return fail_below(dir_fd, path, "clone mount", err);
    if (mount_setattr(mount_fd, "", attribute_flags, &attributes, sizeof attributes) < 0)
        return fail_below(dir_fd, path, userns_fd >= 0 ? "idmap mount" : "set mount attributes", err);
    return steal_fd(&mount_fd);
}

static int set_string(int context_fd, const char *key, const char *value, struct wsrt_error *err)
{
    if (fsconfig(context_fd, FSCONFIG_SET_STRING, key, value, 0) < 0)
        return wsrt_fail(err, "configure overlay", "%s=%s", key, value);
    return 0;
}

static int set_descriptor(int context_fd, const char *key, int fd, struct wsrt_error *err)
{
    if (fsconfig(context_fd, FSCONFIG_SET_FD, key, NULL, fd) < 0)
        return wsrt_fail(err, "configure overlay", "%s=fd %d", key, fd);
    return 0;
}

static int set_descriptors(int context_fd, const struct wsrt_overlay *layers, struct wsrt_error *err)
{
    for (int i = 0; i < layers->n_lowers; i++)
        if (set_descriptor(context_fd, "lowerdir+", layers->lower_fds[i], err) < 0)
            return -1;
    return set_descriptor(context_fd, "upperdir", layers->upper_fd, err) < 0 ||
                   set_descriptor(context_fd, "workdir", layers->work_fd, err) < 0
               ? -1
               : 0;
}

/* KEY is the directory FD in the mount that attach_layers made of its parent. */
static int set_writable_name(int context_fd, const char *key, int fd, struct wsrt_error *err)
{
    char link[32], path[4096], option[256];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return wsrt_fail(err, "read link", "%s", link);
    path[length] = '\0';
    const char *slash = strrchr(path, '/');
    if (snprintf(option, sizeof option, WRITABLE "%s", slash == NULL ? "/" : slash) >= (int)sizeof option)
        return wsrt_fail_with(err, ENAMETOOLONG, "configure overlay", "%s=%s", key, path);
    return set_string(context_fd, key, option, err);
}

/* Old kernels take names of at most 255 bytes, all lowers in one of them, so these are short and relative. */
static int set_names(int context_fd, const struct wsrt_overlay *layers, struct wsrt_error *err)
{
    char option[256] = "";
    size_t used = 0;
    for (int i = 0; i < layers->n_lowers && used < sizeof option; i++)
        used += (size_t)snprintf(option + used, sizeof option - used, "%s%d", i ? ":" : "", i);
    if (used >= sizeof option)
        return wsrt_fail_with(err, E2BIG, "configure overlay", "%d lower layers", layers->n_lowers);
    return set_string(context_fd, "lowerdir", option, err) < 0 ||
                   set_writable_name(context_fd, "upperdir", layers->upper_fd, err) < 0 ||
                   set_writable_name(context_fd, "workdir", layers->work_fd, err) < 0
               ? -1
               : 0;
}

static int mount_layers(const struct wsrt_overlay *layers, struct wsrt_error *err)
{
    CLEANUP_FD int context_fd = fsopen("overlay", FSOPEN_CLOEXEC);
    if (context_fd < 0)
        return wsrt_fail(err, "open filesystem", "overlay");
    if (set_string(context_fd, "source", "webserv_rt", err) < 0 ||
        (layers->by_path ? set_names : set_descriptors)(context_fd, layers, err) < 0)
        return -1;
    /* index, metacopy and redirects tie an upper to its lowers, which breaks uppers that are swapped. */
    if (set_string(context_fd, "index", "off", err) < 0 || set_string(context_fd, "metacopy", "off", err) < 0 ||
        set_string(context_fd, "redirect_dir", "off", err) < 0)
        return -1;
    if (layers->is_volatile && fsconfig(context_fd, FSCONFIG_SET_FLAG, "volatile", NULL, 0) < 0)
        return wsrt_fail(err, "configure overlay", "volatile");
    if (fsconfig(context_fd, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return wsrt_fail(err, "create overlay", "%d lower layers", layers->n_lowers);

    CLEANUP_FD int mount_fd = fsmount(context_fd, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOATIME | MOUNT_ATTR_NODEV);
    if (mount_fd < 0)
        return wsrt_fail(err, "mount overlay", "%d lower layers", layers->n_lowers);

    /* An upper that the kernel cannot write (an idmapped one, say) is mounted read-only without an error. */
    struct statx status;
    CLEANUP_FD int root_fd = openat(mount_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root_fd < 0 || statx(root_fd, "", AT_EMPTY_PATH, STATX_TYPE, &status) < 0)
        return wsrt_fail(err, "open overlay", "merged");
    if (faccessat(mount_fd, ".", W_OK, AT_EACCESS) < 0)
        return wsrt_fail(err, "mount overlay read-write", "merged");
    return steal_fd(&mount_fd);
}

struct attached_mount {
    const struct wsrt_overlay *layers;
    struct wsrt_error *err;
    int result;
};

static int attach(int mount_fd, const char *name, struct wsrt_error *err)
{
    if (mkdir(name, 0700) < 0)
        return wsrt_fail(err, "make directory", "%s", name);
    if (move_mount(mount_fd, "", AT_FDCWD, name, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return wsrt_fail(err, "attach layer", "%s", name);
    return 0;
}

/* Before 6.15 the kernel accepts only layers that lie in the mount namespace of whoever mounts: a private tmpfs
 * becomes the working directory, with the lowers on 0, 1, ... and what upper and work lie in on WRITABLE. */
static int attach_layers(const struct wsrt_overlay *layers, struct wsrt_error *err)
{
    /* While it can still be cloned, in the namespace that it was opened in. */
    CLEANUP_FD int writable_fd = open_tree(layers->upper_fd, "..", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (writable_fd < 0)
        return fail_below(layers->upper_fd, "..", "clone mount", err);
    if (unshare(CLONE_FS | CLONE_NEWNS) < 0)
        return wsrt_fail(err, "unshare mount namespace", "overlay layers");
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return wsrt_fail(err, "make mounts private", "/");
    if (mount("tmpfs", "/proc/sys", "tmpfs", 0, "mode=700,size=64k") < 0)
        return wsrt_fail(err, "mount tmpfs", "/proc/sys");
    if (chdir("/proc/sys") < 0)
        return wsrt_fail(err, "change directory", "/proc/sys");
    for (int i = 0; i < layers->n_lowers; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        if (attach(layers->lower_fds[i], name, err) < 0)
            return -1;
    }
    return attach(writable_fd, WRITABLE, err);
}

static void *mount_in_private_namespace(void *argument)
{
    struct attached_mount *call = argument;
    call->result = attach_layers(call->layers, call->err);
    if (call->result == 0)
        call->result = mount_layers(call->layers, call->err);
    return NULL;
}

int wsrt_mount_overlay(const struct wsrt_overlay *layers, struct wsrt_error *err)
{
    if (layers->n_lowers < 1)
        return wsrt_fail_with(err, EINVAL, "mount overlay", "no lower layer");
    if (!layers->by_path)
        return mount_layers(layers, err);

    /* A thread, so that the caller's mount namespace stays what it is; the namespace dies with the thread. */
    struct attached_mount call = {.layers = layers, .err = err, .result = -1};
    pthread_t thread;
    int code = pthread_create(&thread, NULL, mount_in_private_namespace, &call);
    if (code != 0)
        return wsrt_fail_with(err, code, "start thread", "overlay layers");
    pthread_join(thread, NULL);
    return call.result;
}
