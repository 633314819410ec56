/* Project quotas: how much one directory tree may hold. */
#ifndef WSRT_QUOTA_H
#define WSRT_QUOTA_H

#include <stdint.h>

#include "error.h"

/* Give the empty directory DIR_FD the project PROJECT_ID (not 0), which all that is made in it inherits, and
 * limit the project to LIMIT_BYTES, in one file for every 4 KiB of them at most (0: no limit). Needs XFS mounted
 * with prjquota; else ENOTSUP or ESRCH. Files cannot be renamed or linked into the directory from outside the
 * project any more (EXDEV). */
int wsrt_set_project_quota(int dir_fd, uint32_t project_id, uint64_t limit_bytes, struct wsrt_error *err);

#endif
