#include "cgroup/internal.h"
#include "cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Room for /proc/self/mountinfo and /proc/self/cgroup lines: the paths in them have at most 4,096 bytes. */
struct mount_line {
    char *root;        /* the group that the mount shows at its mount point */
    char *mount_point;
    char *type;        /* "cgroup" or "cgroup2" */
    char *options;     /* of the hierarchy: "rw,cpu,cpuacct" */
};

static const struct {
    const char *name;
    unsigned controller;
} CONTROLLERS[] = {
    {"memory", WSRT_CGROUP_MEMORY}, {"cpu", WSRT_CGROUP_CPU},   {"cpuacct", WSRT_CGROUP_CPUACCT},
    {"pids", WSRT_CGROUP_PIDS},     {"blkio", WSRT_CGROUP_IO},  {"io", WSRT_CGROUP_IO},
    {"freezer", WSRT_CGROUP_FREEZER},
};

/* The controllers of use to us among WORDS, which are parted by SEPARATORS; WORDS is cut up. */
static unsigned parse_controllers(char *words, const char *separators)
{
    unsigned found = 0;
    char *rest = NULL;
    for (char *word = strtok_r(words, separators, &rest); word != NULL; word = strtok_r(NULL, separators, &rest))
        for (size_t i = 0; i < sizeof CONTROLLERS / sizeof CONTROLLERS[0]; i++)
            if (strcmp(word, CONTROLLERS[i].name) == 0)
                found |= CONTROLLERS[i].controller;
    return found;
}

/* mountinfo writes space, tab, newline and backslash as \ooo. */
static void unescape(char *text)
{
    char *out = text;
    for (const char *in = text; *in != '\0';) {
        unsigned code;
        if (in[0] == '\\' && sscanf(in + 1, "%3o", &code) == 1) {
            *out++ = (char)code;
            in += 4;
        } else {
            *out++ = *in++;
        }
    }
    *out = '\0';
}

/* Cut up "ID PARENT MAJOR:MINOR ROOT MOUNT_POINT OPTIONS [FIELD...] - TYPE SOURCE SUPER_OPTIONS". */
static int parse_mount(char *text, struct mount_line *line)
{
    char *tail = strstr(text, " - ");
    if (tail == NULL)
        return -1;
    *tail = '\0';
    char *rest = NULL;
    line->type = strtok_r(tail + 3, " \n", &rest);
    strtok_r(NULL, " \n", &rest);
    line->options = strtok_r(NULL, " \n", &rest);
    strtok_r(text, " ", &rest);
    strtok_r(NULL, " ", &rest);
    strtok_r(NULL, " ", &rest);
    line->root = strtok_r(NULL, " ", &rest);
    line->mount_point = strtok_r(NULL, " ", &rest);
    if (line->mount_point == NULL || line->options == NULL)
        return -1;
    unescape(line->root);
    unescape(line->mount_point);
    return 0;
}

/* Our own group in the v2 hierarchy (CONTROLLERS 0) or the v1 hierarchy with CONTROLLERS, as
 * /proc/self/cgroup says it ("4:memory:/a/b", "0::/a/b"): malloc'ed, or NULL with errno. */
static char *own_group(unsigned controllers)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (file == NULL)
        return NULL;
    CLEANUP_FREE char *line = NULL;
    size_t size = 0;
    char *group = NULL;
    errno = ENOENT;
    while (group == NULL && getline(&line, &size, file) > 0) {
        line[strcspn(line, "\n")] = '\0';
        char *names = strchr(line, ':');
        char *path = names != NULL ? strchr(names + 1, ':') : NULL;
        if (path == NULL)
            continue;
        *path = '\0';
        int is_ours = controllers == 0 ? names[1] == '\0' : (parse_controllers(names + 1, ",") & controllers) != 0;
        if (is_ours)
            group = strdup(path + 1);
    }
    fclose(file);
    return group;
}

/* Groups on v2 need the parent's controllers enabled as well as the right to make directories. */
static int may_make_groups(int dir_fd, int version)
{
    if (faccessat(dir_fd, ".", W_OK, AT_EACCESS) < 0)
        return -1;
    return version == 1 ? 0 : faccessat(dir_fd, "cgroup.subtree_control", W_OK, AT_EACCESS);
}

static int is_refusal(int code)
{
    return code == EACCES || code == EPERM || code == EROFS || code == ENOENT;
}

/* Go from the mount point towards our own group until there is a directory that we may make groups in; -1 with
 * errno when that cannot be found out. Our group may lie outside what is mounted ("/../x" in a cgroup
 * namespace): then only the mount point counts. */
static int choose_directory(struct wsrt_cgroup_hierarchy *hierarchy, const struct mount_line *mount, char *group)
{
    size_t root_length = strcmp(mount->root, "/") == 0 ? 0 : strlen(mount->root);
    int is_inside = strncmp(group, mount->root, root_length) == 0 && strchr("/", group[root_length]) != NULL &&
                    strncmp(group, "/..", 3) != 0;
    char *below = is_inside ? group + root_length : group + strlen(group);
    if (snprintf(hierarchy->directory, sizeof hierarchy->directory, "%s", mount->mount_point) >=
        (int)sizeof hierarchy->directory) {
        hierarchy->code = ENAMETOOLONG;
        return 0;
    }
    for (;;) {
        CLEANUP_FD int fd = open(hierarchy->directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0 && may_make_groups(fd, hierarchy->version) == 0) {
            hierarchy->fd = steal_fd(&fd);
            hierarchy->code = 0;
            return 0;
        }
        if (!is_refusal(errno))
            return -1;
        if (hierarchy->code == 0)
            hierarchy->code = errno;
        below += strspn(below, "/");
        if (*below == '\0')
            return 0;
        size_t used = strlen(hierarchy->directory);
        int length = (int)strcspn(below, "/");
        if (snprintf(hierarchy->directory + used, sizeof hierarchy->directory - used, "/%.*s", length, below) >=
            (int)(sizeof hierarchy->directory - used)) {
            hierarchy->code = ENAMETOOLONG;
            return 0;
        }
        below += length;
    }
}

/* The mount point may be covered by a later mount; then what is found there is not this hierarchy. -1 with errno
 * when that cannot be found out. */
static int is_visible(const struct mount_line *mount, int version)
{
    struct statfs status;
    if (statfs(mount->mount_point, &status) < 0)
        return is_refusal(errno) || errno == ENOTDIR ? 0 : -1;
    return (unsigned long)status.f_type == (version == 2 ? CGROUP2_SUPER_MAGIC : CGROUP_SUPER_MAGIC);
}

static int find_v2_controllers(struct wsrt_cgroup_hierarchy *hierarchy)
{
    char words[512];
    if (hierarchy->fd < 0)
        return 0;
    if (wsrt_cgroup_get(hierarchy, ".", "cgroup.controllers", words, sizeof words) < 0)
        return -1;
    hierarchy->controllers = parse_controllers(words, " \n");
    return 0;
}

static int is_known(const struct wsrt_cgroup_mounts *mounts, int version, unsigned controllers)
{
    for (int i = 0; i < mounts->n_hierarchies; i++) {
        const struct wsrt_cgroup_hierarchy *known = &mounts->hierarchies[i];
        if (known->version == version && (version == 2 || (known->controllers & controllers) != 0))
            return 1;
    }
    return 0;
}

/* Take the hierarchy of one mount unless it is of no use or known already (bind mounts show it again). */
static int add_mount(struct wsrt_cgroup_mounts *out, const struct mount_line *mount, struct wsrt_error *err)
{
    int version = strcmp(mount->type, "cgroup2") == 0 ? 2 : 1;
    unsigned controllers = version == 1 ? parse_controllers(mount->options, ",") : 0;
    int is_useless = version == 1 && controllers == 0;
    if (is_useless || is_known(out, version, controllers))
        return 0;
    int visible = is_visible(mount, version);
    if (visible <= 0)
        return visible < 0 ? wsrt_fail(err, "examine cgroup hierarchy", "%s", mount->mount_point) : 0;
    CLEANUP_FREE char *group = own_group(controllers);
    if (group == NULL)
        return wsrt_fail(err, "find our own cgroup", "/proc/self/cgroup, hierarchy %s", mount->mount_point);

    struct wsrt_cgroup_hierarchy hierarchy = {.version = version, .controllers = controllers, .fd = -1};
    if (choose_directory(&hierarchy, mount, group) < 0 || (version == 2 && find_v2_controllers(&hierarchy) < 0)) {
        wsrt_fail(err, "open cgroup hierarchy", "%s", hierarchy.directory);
        cleanup_close(&hierarchy.fd);
        return -1;
    }
    if (version == 2) {
        memmove(&out->hierarchies[1], &out->hierarchies[0], (size_t)out->n_hierarchies * sizeof hierarchy);
        out->hierarchies[0] = hierarchy;
    } else {
        out->hierarchies[out->n_hierarchies] = hierarchy;
    }
    out->n_hierarchies++;
    return 0;
}

/* The unified hierarchy counts cpu time and freezes without a controller: where it is there, the v1 ones that
 * do only that would cost a directory per group for nothing. */
static void drop_superfluous(struct wsrt_cgroup_mounts *out)
{
    if (wsrt_cgroup_v2(out) == NULL)
        return;
    int kept = 1;
    for (int i = 1; i < out->n_hierarchies; i++) {
        struct wsrt_cgroup_hierarchy *hierarchy = &out->hierarchies[i];
        if ((hierarchy->controllers & ~(unsigned)(WSRT_CGROUP_CPUACCT | WSRT_CGROUP_FREEZER)) != 0)
            out->hierarchies[kept++] = *hierarchy;
        else
            cleanup_close(&hierarchy->fd);
    }
    out->n_hierarchies = kept;
}

static enum wsrt_cgroup_layout layout_of(const struct wsrt_cgroup_mounts *mounts)
{
    if (mounts->n_hierarchies == 0)
        return WSRT_CGROUP_NONE;
    if (mounts->hierarchies[0].version == 1)
        return WSRT_CGROUP_V1;
    return mounts->n_hierarchies == 1 ? WSRT_CGROUP_V2 : WSRT_CGROUP_HYBRID;
}

static int file_contains(int dir_fd, const char *name, const char *word)
{
    char text[4096];
    CLEANUP_FD int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && wsrt_cgroup_read(fd, text, sizeof text) >= 0 && strstr(text, word) != NULL;
}

/* io.weight takes any number even where nothing heeds it. Only the root group shows whether iocost is on. */
static enum wsrt_cgroup_io_weight io_weight_by(const struct wsrt_cgroup_mounts *mounts)
{
    const struct wsrt_cgroup_hierarchy *v2 = wsrt_cgroup_v2(mounts);
    if (v2 != NULL && file_contains(v2->fd, "io.cost.qos", "enable=1"))
        return WSRT_CGROUP_IO_WEIGHT_IOCOST;
    CLEANUP_DIR DIR *disks = opendir("/sys/block");
    const struct dirent *disk;
    while (disks != NULL && (disk = readdir(disks)) != NULL) {
        char name[300];
        snprintf(name, sizeof name, "%s/queue/scheduler", disk->d_name);
        if (disk->d_name[0] != '.' && file_contains(dirfd(disks), name, "[bfq]"))
            return WSRT_CGROUP_IO_WEIGHT_BFQ;
    }
    return WSRT_CGROUP_IO_WEIGHT_IGNORED;
}

static int read_mounts(struct wsrt_cgroup_mounts *out, struct wsrt_error *err)
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    if (file == NULL)
        return wsrt_fail(err, "open", "/proc/self/mountinfo");
    CLEANUP_FREE char *line = NULL;
    size_t size = 0;
    int result = 0;
    while (result == 0 && getline(&line, &size, file) > 0) {
        struct mount_line mount;
        if (parse_mount(line, &mount) == 0 &&
            (strcmp(mount.type, "cgroup") == 0 || strcmp(mount.type, "cgroup2") == 0))
            result = add_mount(out, &mount, err);
    }
    if (result == 0 && !feof(file))
        result = wsrt_fail(err, "read", "/proc/self/mountinfo");
    fclose(file);
    return result;
}

int wsrt_cgroup_discover(struct wsrt_cgroup_mounts *out, struct wsrt_error *err)
{
    memset(out, 0, sizeof *out);
    if (read_mounts(out, err) < 0) {
        wsrt_cgroup_close(out);
        return -1;
    }
    drop_superfluous(out);
    out->layout = layout_of(out);
    out->io_weight_by = io_weight_by(out);
    return 0;
}

void wsrt_cgroup_close(struct wsrt_cgroup_mounts *mounts)
{
    for (int i = 0; i < mounts->n_hierarchies; i++)
        cleanup_close(&mounts->hierarchies[i].fd);
    memset(mounts, 0, sizeof *mounts);
}
