/* The floor that clones are measured against: the fewest system calls that make a faithful clone of plain
 * files, no error handled, work shared out by counting. Built and called by bench_clone.py. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

struct part {
    int source_fd, dest_fd, index, n_parts, n_seen;
};

static void clone_one(int source_dir, int dest_dir, const char *name)
{
    struct stat status;
    int source = openat(source_dir, name, O_RDONLY);
    fstat(source, &status);
    int dest = openat(dest_dir, name, O_WRONLY | O_CREAT | O_EXCL, status.st_mode & 07777);
    if (status.st_size > 0 && ioctl(dest, FICLONE, source) < 0)
        _exit(1);
    fchown(dest, status.st_uid, status.st_gid);
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, status.st_mtim};
    futimens(dest, times);
    close(source);
    close(dest);
}

static void clone_directory(struct part *part, int source, int dest)
{
    DIR *directory = fdopendir(dup(source));
    rewinddir(directory);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (entry->d_type == DT_DIR) {
            mkdirat(dest, entry->d_name, 0700);
            int below = openat(source, entry->d_name, O_RDONLY), made = openat(dest, entry->d_name, O_RDONLY);
            clone_directory(part, below, made);
            close(below);
            close(made);
        } else if (part->n_seen++ % part->n_parts == part->index) {
            clone_one(source, dest, entry->d_name);
        }
    }
    closedir(directory);
}

static void *clone_part(void *argument)
{
    struct part *part = argument;
    int source = openat(part->source_fd, ".", O_RDONLY);
    clone_directory(part, source, part->dest_fd);
    close(source);
    return NULL;
}

void floor_clone(int source_fd, int parent_fd, const char *name, int n_threads)
{
    pthread_t threads[8];
    struct part parts[8];
    mkdirat(parent_fd, name, 0700);
    int dest_fd = openat(parent_fd, name, O_RDONLY);
    for (int i = 0; i < n_threads; i++)
        parts[i] = (struct part){source_fd, dest_fd, i, n_threads, 0};
    for (int i = 1; i < n_threads; i++)
        pthread_create(&threads[i], NULL, clone_part, &parts[i]);
    clone_part(&parts[0]);
    for (int i = 1; i < n_threads; i++)
        pthread_join(threads[i], NULL);
    close(dest_fd);
}
