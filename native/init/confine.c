#include "confine.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int drop_capabilities(uint64_t kept, struct wsrt_error *err)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];

    for (int capability = 0; capability < 64; capability++) {
        if (kept & (1ULL << capability))
            continue;
        if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0) {
            if (errno == EINVAL)
                break; /* the first one that this kernel does not know */
            return wsrt_fail(err, "drop capability", "%d", capability);
        }
    }
    for (int half = 0; half < 2; half++) {
        data[half].effective = data[half].permitted = (uint32_t)(kept >> (32 * half));
        data[half].inheritable = 0;
    }
    if (syscall(SYS_capset, &header, data) < 0)
        return wsrt_fail(err, "set capabilities", "%llx", (unsigned long long)kept);
    return 0;
}

int confine(int userns_fd, uint64_t kept_capabilities, struct wsrt_error *err)
{
    if (setns(userns_fd, CLONE_NEWUSER) < 0)
        return wsrt_fail(err, "enter user namespace", "fd %d", userns_fd);
    if (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
        return wsrt_fail(err, "become root of the user namespace", "id 0");
    if (drop_capabilities(kept_capabilities, err) < 0)
        return -1;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return wsrt_fail(err, "set no_new_privs", "pid 1");
    return confine_system_calls(err);
}
