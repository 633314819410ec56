#include "quota.h"

#include <linux/dqblk_xfs.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/quota.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BASIC_BLOCK_BYTES 512
/* An empty file takes half a KiB that is nobody's by the count of blocks: a share of files goes with that of bytes. */
#define BYTES_PER_FILE 4096

static int join_project(int dir_fd, uint32_t project_id)
{
    struct fsxattr attributes;
    if (ioctl(dir_fd, FS_IOC_FSGETXATTR, &attributes) < 0)
        return -1;
    attributes.fsx_projid = project_id;
    attributes.fsx_xflags |= FS_XFLAG_PROJINHERIT;
    return ioctl(dir_fd, FS_IOC_FSSETXATTR, &attributes);
}

int wsrt_set_project_quota(int dir_fd, uint32_t project_id, uint64_t limit_bytes, struct wsrt_error *err)
{
    struct fs_disk_quota quota = {
        .d_version = FS_DQUOT_VERSION,
        .d_flags = FS_PROJ_QUOTA,
        .d_fieldmask = FS_DQ_BHARD | FS_DQ_IHARD,
        .d_id = project_id,
        .d_ino_hardlimit = (limit_bytes + BYTES_PER_FILE - 1) / BYTES_PER_FILE,
        .d_blk_hardlimit = (limit_bytes + BASIC_BLOCK_BYTES - 1) / BASIC_BLOCK_BYTES,
    };
    /* The limit comes first: where there are no quotas, nothing was changed. */
    if (syscall(SYS_quotactl_fd, dir_fd, QCMD(Q_XSETQLIM, PRJQUOTA), project_id, &quota) < 0)
        return wsrt_fail(err, "set project quota", "project %u", project_id);
    if (join_project(dir_fd, project_id) < 0)
        return wsrt_fail(err, "join project", "project %u", project_id);
    return 0;
}
