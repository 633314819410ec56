/* Depth is the attacker's: a process inside an instance can nest directories far beyond PATH_MAX and beyond
 * the descriptor limit. So there is no recursion and no path: a bounded stack of open directories, and a
 * directory that lies below it is first moved up to the root of the tree, where it is met again. Moving up
 * needs no "..", which would lead elsewhere if somebody moved the directory in the meantime. */
#include "remove.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/btrfs.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "beneath.h"
#include "cleanup.h"

#define MAX_LEVELS 32
#define ENTRY_BYTES 4096
#define STEP "remove tree"
#define BTRFS_SUBVOLUME_INODE 256

struct level {
    int fd;
    bool made_progress; /* since the directory was last read from its start */
    size_t n_bytes, position;
    char name[NAME_MAX + 1];
    char entries[ENTRY_BYTES] __attribute__((aligned(8)));
};

struct removal {
    int parent_fd;
    bool is_btrfs;
    unsigned n_moved;
    int n_levels;
    struct level levels[MAX_LEVELS];
};

static void close_removal(struct removal **removal)
{
    while (*removal != NULL && (*removal)->n_levels > 0)
        close((*removal)->levels[--(*removal)->n_levels].fd);
    free(*removal);
}

static int fail_at(const struct removal *removal, const char *name, struct wsrt_error *err)
{
    char path[sizeof err->object] = "";
    int saved = errno;
    size_t used = 0;
    for (int i = 0; i < removal->n_levels && used < sizeof path; i++)
        used += (size_t)snprintf(path + used, sizeof path - used, "%s/", removal->levels[i].name);
    errno = saved;
    return wsrt_fail(err, STEP, "%s%s", path, name);
}

static int directory_of(const struct removal *removal, int level)
{
    return level == 0 ? removal->parent_fd : removal->levels[level - 1].fd;
}

static bool destroy_subvolume(int parent_fd, int fd, const char *name)
{
    struct btrfs_ioctl_vol_args args = {0};
    struct stat status;
    if (fstat(fd, &status) < 0 || status.st_ino != BTRFS_SUBVOLUME_INODE)
        return false;
    memcpy(args.name, name, strlen(name));
    return ioctl(parent_fd, BTRFS_IOC_SNAP_DESTROY, &args) == 0;
}

/* Move the directory NAME, which lies too deep to be entered, to the root of the tree. */
static int move_up(struct removal *removal, int dir_fd, const char *name)
{
    for (;;) {
        char moved[32];
        snprintf(moved, sizeof moved, ".moved-%u", removal->n_moved++);
        if (renameat2(dir_fd, name, removal->levels[0].fd, moved, RENAME_NOREPLACE) == 0)
            return 0;
        if (errno != EEXIST)
            return -1;
    }
}

/* Make the directory NAME the deepest level, or move it out of the way; ENOTDIR when it is none. */
static int enter(struct removal *removal, const char *name)
{
    int dir_fd = directory_of(removal, removal->n_levels);
    if (removal->n_levels == MAX_LEVELS)
        return move_up(removal, dir_fd, name);
    CLEANUP_FD int fd = open_directory_beneath(dir_fd, name);
    if (fd < 0)
        return -1;
    if (removal->is_btrfs && destroy_subvolume(dir_fd, fd, name))
        return 0;
    struct level *level = &removal->levels[removal->n_levels++];
    level->fd = steal_fd(&fd);
    level->made_progress = false;
    level->n_bytes = level->position = 0;
    memcpy(level->name, name, strlen(name) + 1);
    return 0;
}

static int remove_entry(struct removal *removal, const char *name, bool is_directory)
{
    int dir_fd = directory_of(removal, removal->n_levels);
    if (!is_directory && unlinkat(dir_fd, name, 0) == 0)
        return 0;
    if ((is_directory || errno == EISDIR) && enter(removal, name) == 0)
        return 0;
    return errno == ENOENT ? 0 : -1;
}

/* Find the next entry of LEVEL, NULL at its end. */
static int next_entry(struct level *level, struct dirent64 **entry)
{
    for (*entry = NULL; *entry == NULL;) {
        if (level->position == level->n_bytes) {
            ssize_t n_read = getdents64(level->fd, level->entries, sizeof level->entries);
            if (n_read <= 0)
                return n_read == 0 || errno == ENOENT ? 0 : -1; /* ENOENT: somebody else removed it */
            level->n_bytes = (size_t)n_read;
            level->position = 0;
        }
        struct dirent64 *found = (struct dirent64 *)(level->entries + level->position);
        level->position += found->d_reclen;
        if (strcmp(found->d_name, ".") != 0 && strcmp(found->d_name, "..") != 0)
            *entry = found;
    }
    return 0;
}

/* Remove the deepest level's directory. Entries may have been skipped while others went away, or have been
 * moved up to it: as long as a pass over the directory achieves something, it is followed by another. */
static int leave(struct removal *removal)
{
    struct level *level = &removal->levels[removal->n_levels - 1];
    int dir_fd = directory_of(removal, removal->n_levels - 1);
    if (unlinkat(dir_fd, level->name, AT_REMOVEDIR) < 0 && errno != ENOENT) {
        if (errno != ENOTEMPTY || !level->made_progress || lseek(level->fd, 0, SEEK_SET) < 0)
            return -1;
        level->made_progress = false;
        return 0;
    }
    close(level->fd);
    removal->n_levels--;
    return 0;
}

static int empty(struct removal *removal, struct wsrt_error *err)
{
    while (removal->n_levels > 0) {
        struct level *level = &removal->levels[removal->n_levels - 1];
        struct dirent64 *entry;
        if (next_entry(level, &entry) < 0)
            return fail_at(removal, "", err);
        if (entry == NULL) {
            if (leave(removal) < 0)
                return fail_at(removal, "", err);
            continue;
        }
        if (remove_entry(removal, entry->d_name, entry->d_type == DT_DIR) < 0)
            return fail_at(removal, entry->d_name, err);
        level->made_progress = true;
    }
    return 0;
}

int wsrt_remove_tree(int parent_fd, const char *name, struct wsrt_error *err)
{
    struct statfs filesystem;
    if (!is_single_name(name))
        return wsrt_fail_with(err, EINVAL, STEP, "\"%.100s\" (not a single name)", name);
    if (fstatfs(parent_fd, &filesystem) < 0)
        return wsrt_fail(err, STEP, "%s", name);
    __attribute__((cleanup(close_removal))) struct removal *removal = malloc(sizeof *removal);
    if (removal == NULL)
        return wsrt_fail(err, STEP, "%s", name);
    removal->parent_fd = parent_fd;
    removal->is_btrfs = filesystem.f_type == BTRFS_SUPER_MAGIC;
    removal->n_moved = 0;
    removal->n_levels = 0;
    if (remove_entry(removal, name, false) < 0)
        return fail_at(removal, name, err);
    return empty(removal, err);
}
