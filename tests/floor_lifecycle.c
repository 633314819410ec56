/* The floors that the steps of a bare lifecycle are measured against: only the system calls, no error told.
 * Built and called by bench_lifecycle.py. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

int floor_overlay(int lower_fd, int upper_fd, int work_fd)
{
    int context = fsopen("overlay", FSOPEN_CLOEXEC);
    fsconfig(context, FSCONFIG_SET_FD, "lowerdir+", NULL, lower_fd);
    fsconfig(context, FSCONFIG_SET_FD, "upperdir", NULL, upper_fd);
    fsconfig(context, FSCONFIG_SET_FD, "workdir", NULL, work_fd);
    fsconfig(context, FSCONFIG_SET_FLAG, "volatile", NULL, 0);
    if (fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return -1;
    int mount_fd = fsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOATIME);
    close(context);
    return mount_fd;
}

/* `hierarchies` and `writes` ("hierarchy index/file=value") end with NULL. */
int floor_cgroup(const char *const *hierarchies, const char *const *writes, const char *name)
{
    char path[512];
    for (int i = 0; hierarchies[i] != NULL; i++) {
        snprintf(path, sizeof path, "%s/%s", hierarchies[i], name);
        if (mkdir(path, 0755) < 0)
            return -1;
    }
    for (int i = 0; writes[i] != NULL; i++) {
        int index = writes[i][0] - '0';
        const char *value = strchr(writes[i], '=') + 1;
        snprintf(path, sizeof path, "%s/%s/%.*s", hierarchies[index], name, (int)(value - writes[i] - 3), writes[i] + 2);
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0 || write(fd, value, strlen(value)) < 0)
            return -1;
        close(fd);
    }
    for (int i = 0; hierarchies[i] != NULL; i++) {
        snprintf(path, sizeof path, "%s/%s", hierarchies[i], name);
        rmdir(path);
    }
    return 0;
}
