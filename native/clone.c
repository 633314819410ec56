/* A tree is shared out among threads by runs of directory entries, not by directories: an initialized
 * PostgreSQL cluster has 300 files in one of them.
 *
 * Directories are opened by their path below the root, not kept open until their turn comes: the number of
 * descriptors depends on the number of threads, not on the shape of the tree. A path longer than PATH_MAX
 * is refused (ENAMETOOLONG). */
#include "clone.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <search.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "beneath.h"
#include "cleanup.h"
#include "clone_entry.h"
#include "remove.h"

#define RUN_BYTES 2048 /* of directory entries: about 70 files, 2 ms of work */
#define THREAD_STACK_BYTES (256 * 1024)
#define MAX_THREADS 64

/* A directory of the tree: created and queued, then open while its entries are being cloned. */
struct directory {
    struct directory *next;
    int source_fd, dest_fd;
    int n_users; /* unfinished runs, and whoever reads the directory; under tree.lock */
    struct stat status;
    char path[]; /* below the root; "" for the root itself */
};

/* Consecutive entries of a directory: what one thread takes at a time. */
struct run {
    struct run *next;
    struct directory *directory;
    size_t n_bytes;
    char entries[RUN_BYTES] __attribute__((aligned(8)));
};

/* Where a file with several links was cloned first. */
struct link {
    dev_t device;
    ino_t inode;
    char *path;
};

struct tree {
    const char *name;
    int source_fd, dest_fd;
    struct stat dest_status;
    unsigned flags;
    mode_t umask;

    pthread_mutex_t lock;
    pthread_cond_t has_changed;
    struct run *runs;
    struct directory *directories;
    int n_unfinished; /* queued or being worked on */
    bool has_failed;
    struct wsrt_error error;

    pthread_mutex_t links_lock;
    void *links; /* of struct link, by tsearch */
};

static int compare_links(const void *left, const void *right)
{
    const struct link *a = left, *b = right;
    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    return (a->inode > b->inode) - (a->inode < b->inode);
}

static void free_link(void *node)
{
    struct link *link = node;
    free(link->path);
    free(link);
}

static const char *separator(const char *directory)
{
    return *directory != '\0' ? "/" : "";
}

static int remember_link(struct tree *tree, const struct stat *status, const char *directory, const char *name)
{
    struct link *link = calloc(1, sizeof *link);
    if (link == NULL)
        return -1;
    link->device = status->st_dev;
    link->inode = status->st_ino;
    if (asprintf(&link->path, "%s%s%s", directory, separator(directory), name) < 0)
        link->path = NULL;
    if (link->path != NULL && tsearch(link, &tree->links, compare_links) != NULL)
        return 0;
    free_link(link);
    errno = ENOMEM;
    return -1;
}

/* Clone a file with several links: its first name makes the clone, the others are linked to that. Under
 * links_lock, so that nobody links to a clone still being made. */
static int clone_linked(struct tree *tree, const struct directory *directory, const struct clone_entry *entry,
                        struct wsrt_error *err)
{
    struct link key = {entry->status.st_dev, entry->status.st_ino, NULL};
    struct link **found = tfind(&key, &tree->links, compare_links);
    if (found == NULL) {
        if (wsrt_clone_entry(entry, err) < 0)
            return -1;
        if (remember_link(tree, &entry->status, directory->path, entry->dest_name) < 0)
            return wsrt_fail_entry(entry, "remember link", err);
    } else if (linkat(tree->dest_fd, (*found)->path, entry->dest_dir_fd, entry->dest_name, 0) < 0) {
        return wsrt_fail_entry(entry, "link file", err);
    }
    return 0;
}

static struct directory *new_directory(const char *parent, const char *name)
{
    size_t size = strlen(parent) + strlen(name) + 2;
    struct directory *directory = malloc(sizeof *directory + size);
    if (directory == NULL)
        return NULL;
    *directory = (struct directory){.source_fd = -1, .dest_fd = -1, .n_users = 1};
    snprintf(directory->path, size, "%s%s%s", parent, separator(parent), name);
    return directory;
}

static void queue_directory(struct tree *tree, struct directory *directory)
{
    pthread_mutex_lock(&tree->lock);
    directory->next = tree->directories;
    tree->directories = directory;
    tree->n_unfinished++;
    pthread_cond_signal(&tree->has_changed);
    pthread_mutex_unlock(&tree->lock);
}

static int clone_subdirectory(struct tree *tree, const struct directory *parent,
                              const struct clone_entry *entry, struct wsrt_error *err)
{
    struct directory *directory = NULL;
    if (mkdirat(entry->dest_dir_fd, entry->dest_name, 0700) < 0
        || (directory = new_directory(parent->path, entry->dest_name)) == NULL)
        return wsrt_fail_entry(entry, "create directory", err);
    queue_directory(tree, directory);
    return 0;
}

static int clone_examined(struct tree *tree, const struct directory *directory, const struct clone_entry *entry,
                          struct wsrt_error *err)
{
    if (S_ISDIR(entry->status.st_mode))
        return clone_subdirectory(tree, directory, entry, err);
    if (entry->status.st_nlink == 1)
        return wsrt_clone_entry(entry, err);
    pthread_mutex_lock(&tree->links_lock);
    int result = clone_linked(tree, directory, entry, err);
    pthread_mutex_unlock(&tree->links_lock);
    return result;
}

static int clone_found(struct tree *tree, const struct directory *directory, const struct dirent64 *found,
                       struct wsrt_error *err)
{
    struct clone_entry entry = {
        .source_dir_fd = directory->source_fd,
        .dest_dir_fd = directory->dest_fd,
        .source_name = found->d_name,
        .dest_name = found->d_name,
        .label = {directory->path, separator(directory->path), found->d_name},
        .flags = tree->flags,
        .umask = tree->umask,
        .source_fd = -1,
    };
    if (found->d_type == DT_DIR)
        return clone_subdirectory(tree, directory, &entry, err);
    int result = wsrt_examine_entry(&entry, found->d_type == DT_REG, err);
    if (result == 0)
        result = clone_examined(tree, directory, &entry, err);
    cleanup_close(&entry.source_fd);
    return result;
}

static const char *path_or_dot(const struct directory *directory)
{
    return *directory->path != '\0' ? directory->path : ".";
}

static void free_directory(struct directory *directory)
{
    cleanup_close(&directory->source_fd);
    cleanup_close(&directory->dest_fd);
    free(directory);
}

/* Give one use of DIRECTORY back. The last one sets its attributes, only now that everything was created in
 * it: a default ACL set earlier would have been inherited, the modification time would have changed, and its
 * mode might have kept us out. */
static int leave_directory(struct tree *tree, struct directory *directory, struct wsrt_error *err)
{
    int result = 0;
    pthread_mutex_lock(&tree->lock);
    bool is_last = --directory->n_users == 0;
    bool has_failed = tree->has_failed;
    pthread_mutex_unlock(&tree->lock);
    if (!is_last)
        return 0;
    if (!has_failed)
        result = wsrt_clone_directory_attributes(directory->source_fd, &directory->status, directory->dest_fd,
                                                 path_or_dot(directory), err);
    free_directory(directory);
    return result;
}

static int clone_run(struct tree *tree, struct run *run, struct wsrt_error *err)
{
    int result = 0;
    for (size_t position = 0; position < run->n_bytes && result == 0;) {
        struct dirent64 *found = (struct dirent64 *)(run->entries + position);
        position += found->d_reclen;
        if (strcmp(found->d_name, ".") != 0 && strcmp(found->d_name, "..") != 0)
            result = clone_found(tree, run->directory, found, err);
    }
    struct directory *directory = run->directory;
    free(run);
    return leave_directory(tree, directory, err) < 0 ? -1 : result;
}

static void queue_run(struct tree *tree, struct run *run)
{
    pthread_mutex_lock(&tree->lock);
    run->directory->n_users++;
    run->next = tree->runs;
    tree->runs = run;
    tree->n_unfinished++;
    pthread_cond_signal(&tree->has_changed);
    pthread_mutex_unlock(&tree->lock);
}

/* Read the directory in runs, leaving them to whoever is free. */
static int read_directory(struct tree *tree, struct directory *directory, struct wsrt_error *err)
{
    for (;;) {
        struct run *run = malloc(sizeof *run);
        ssize_t n_read = run != NULL ? getdents64(directory->source_fd, run->entries, sizeof run->entries) : -1;
        if (n_read <= 0) {
            free(run);
            return n_read < 0 ? wsrt_fail(err, "read directory", "%s", path_or_dot(directory)) : 0;
        }
        run->directory = directory;
        run->n_bytes = (size_t)n_read;
        queue_run(tree, run);
    }
}

static int open_pair(const struct tree *tree, struct directory *directory, struct wsrt_error *err)
{
    const char *path = path_or_dot(directory);
    directory->source_fd = open_directory_beneath(tree->source_fd, path);
    if (directory->source_fd < 0 || fstat(directory->source_fd, &directory->status) < 0)
        return wsrt_fail(err, "open directory", "%s", path);
    if (directory->status.st_ino == tree->dest_status.st_ino
        && directory->status.st_dev == tree->dest_status.st_dev)
        return wsrt_fail_with(err, EINVAL, "clone tree", "%s (a tree cannot be cloned into itself)", path);
    directory->dest_fd = open_directory_beneath(tree->dest_fd, path);
    return directory->dest_fd < 0 ? wsrt_fail(err, "open directory", "%s", path) : 0;
}

static int clone_directory(struct tree *tree, struct directory *directory, struct wsrt_error *err)
{
    if (open_pair(tree, directory, err) < 0) {
        free_directory(directory);
        return -1;
    }
    int result = read_directory(tree, directory, err);
    return leave_directory(tree, directory, err) < 0 ? -1 : result;
}

/* -- threads --------------------------------------------------------------------------------------- */

/* Take one piece of work and do it; runs come before directories, so that few directories are open at once.
 * Called and left with the lock held. */
static void work_once(struct tree *tree)
{
    struct wsrt_error error = {0};
    struct run *run = tree->runs;
    struct directory *directory = tree->directories;
    int result;
    if (run != NULL) {
        tree->runs = run->next;
        pthread_mutex_unlock(&tree->lock);
        result = clone_run(tree, run, &error);
    } else {
        tree->directories = directory->next;
        pthread_mutex_unlock(&tree->lock);
        result = clone_directory(tree, directory, &error);
    }
    pthread_mutex_lock(&tree->lock);
    if (result < 0 && !tree->has_failed) {
        tree->has_failed = true;
        tree->error = error;
    }
    if (--tree->n_unfinished == 0 || tree->has_failed)
        pthread_cond_broadcast(&tree->has_changed);
}

static void *work(void *argument)
{
    struct tree *tree = argument;
    pthread_mutex_lock(&tree->lock);
    while (tree->n_unfinished > 0 && !tree->has_failed) {
        if (tree->runs != NULL || tree->directories != NULL)
            work_once(tree);
        else
            pthread_cond_wait(&tree->has_changed, &tree->lock);
    }
    pthread_mutex_unlock(&tree->lock);
    return NULL;
}

/* Start up to N helpers; fewer are no failure, the caller works too. They take no signals: those are the
 * embedding program's. Returns how many were started. */
static int start_helpers(struct tree *tree, pthread_t *helpers, int n)
{
    pthread_attr_t attributes;
    sigset_t all, previous;
    int n_started = 0;
    if (n <= 0 || pthread_attr_init(&attributes) != 0)
        return 0;
    pthread_attr_setstacksize(&attributes, THREAD_STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &previous);
    while (n_started < n && pthread_create(&helpers[n_started], &attributes, work, tree) == 0)
        n_started++;
    pthread_sigmask(SIG_SETMASK, &previous, NULL);
    pthread_attr_destroy(&attributes);
    return n_started;
}

/* Drop what a failure left undone. */
static void discard_work(struct tree *tree)
{
    struct wsrt_error ignored = {0};
    while (tree->runs != NULL) {
        struct run *run = tree->runs;
        tree->runs = run->next;
        leave_directory(tree, run->directory, &ignored);
        free(run);
    }
    while (tree->directories != NULL) {
        struct directory *directory = tree->directories;
        tree->directories = directory->next;
        free_directory(directory);
    }
}

static int clone_contents(struct tree *tree, int n_threads, struct wsrt_error *err)
{
    pthread_t helpers[MAX_THREADS];
    struct directory *root = new_directory("", "");
    if (root == NULL)
        return wsrt_fail(err, "clone tree", "%s", tree->name);
    pthread_mutex_init(&tree->lock, NULL);
    pthread_mutex_init(&tree->links_lock, NULL);
    pthread_cond_init(&tree->has_changed, NULL);
    tree->directories = root;
    tree->n_unfinished = 1;
    int n_helpers = start_helpers(tree, helpers, n_threads - 1);
    work(tree);
    while (n_helpers > 0)
        pthread_join(helpers[--n_helpers], NULL);
    discard_work(tree);
    tdestroy(tree->links, free_link);
    pthread_cond_destroy(&tree->has_changed);
    pthread_mutex_destroy(&tree->links_lock);
    pthread_mutex_destroy(&tree->lock);
    if (!tree->has_failed)
        return 0;
    if (err != NULL && err->code == 0)
        *err = tree->error;
    return -1;
}

/* Open the new root and learn from it what the file creation mask takes away: the mask itself cannot be read
 * without changing it for the whole process. Then make it like any other new directory: a parent with the
 * set-group-id bit bequeaths that and its group. */
static int open_root(struct tree *tree, int dest_parent_fd, struct wsrt_error *err)
{
    tree->dest_fd = open_directory_beneath(dest_parent_fd, tree->name);
    if (tree->dest_fd < 0 || fstat(tree->dest_fd, &tree->dest_status) < 0)
        return wsrt_fail(err, "open directory", "%s", tree->name);
    tree->umask = ~tree->dest_status.st_mode & 0777;
    if (fchown(tree->dest_fd, geteuid(), getegid()) < 0 || fchmod(tree->dest_fd, 0700) < 0)
        return wsrt_fail(err, "create directory", "%s", tree->name);
    return 0;
}

int wsrt_clone_tree(int source_fd, int dest_parent_fd, const char *name, int n_threads, unsigned flags,
                    struct wsrt_error *err)
{
    if (!is_single_name(name))
        return wsrt_fail_with(err, EINVAL, "clone tree", "\"%.100s\" (not a single name)", name);
    if (n_threads < 1 || n_threads > MAX_THREADS)
        return wsrt_fail_with(err, EINVAL, "clone tree", "%s (%d threads, not 1 to %d)", name, n_threads,
                              MAX_THREADS);
    if (mkdirat(dest_parent_fd, name, 0777) < 0)
        return wsrt_fail(err, "create directory", "%s", name);
    struct tree tree = {.name = name, .source_fd = source_fd, .dest_fd = -1, .flags = flags};
    int result = open_root(&tree, dest_parent_fd, err);
    if (result == 0)
        result = clone_contents(&tree, n_threads, err);
    cleanup_close(&tree.dest_fd);
    if (result < 0)
        wsrt_remove_tree(dest_parent_fd, name, NULL);
    return result;
}
