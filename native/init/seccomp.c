/* The system call filter of every process in an instance. A deny list: servers use nearly everything else, and
 * the namespaces and capabilities carry the confinement; the filter shuts what these leave open (io_uring, vsock)
 * and keeps hostile code away from large, rarely needed kernel interfaces.
 *
 * "Not there" (ENOSYS) is answered where programs fall back by themselves: io_uring and native AIO (MariaDB,
 * PostgreSQL and libuv do), and clone3, whose flags a filter cannot see (glibc falls back to clone). */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "../arch.h"
#include "confine.h"

#ifndef SYS_open_tree_attr
#define SYS_open_tree_attr 467 /* from Linux 6.15 */
#endif

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define ANSWER(code) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ((code) & SECCOMP_RET_DATA))
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
/* The next instruction applies to this call alone. */
#define ONLY(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1)
#define REFUSE(name) ONLY(SYS_##name), ANSWER(EPERM)
#define ABSENT(name) ONLY(SYS_##name), ANSWER(ENOSYS)
/* Skip N instructions unless it is this call. */
#define UNLESS(name, n) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, (n))

enum {
    NEW_NAMESPACES = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |
                     CLONE_NEWCGROUP,
    X32_BIT = 0x40000000,
};

static const struct sock_filter FILTER[] = {
    /* Another architecture's calls have other numbers: none of them. */
    LOAD(arch),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, WSRT_AUDIT_ARCH, 1, 0),
    ANSWER(ENOSYS),
    LOAD(nr),
#ifdef __x86_64__
    BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1),
    ANSWER(ENOSYS),
#endif
    ABSENT(io_uring_setup), ABSENT(io_uring_enter), ABSENT(io_uring_register),
    ABSENT(io_setup), ABSENT(io_submit), ABSENT(io_getevents), ABSENT(io_cancel), ABSENT(io_destroy),
    ABSENT(clone3),
    REFUSE(mount), REFUSE(umount2), REFUSE(pivot_root), REFUSE(setns),
    REFUSE(open_tree), REFUSE(move_mount), REFUSE(fsopen), REFUSE(fsconfig), REFUSE(fsmount), REFUSE(fspick),
    REFUSE(mount_setattr), REFUSE(open_tree_attr),
    REFUSE(bpf), REFUSE(perf_event_open), REFUSE(userfaultfd), REFUSE(open_by_handle_at),
    REFUSE(add_key), REFUSE(request_key), REFUSE(keyctl),
    REFUSE(kexec_load), REFUSE(kexec_file_load), REFUSE(reboot),
    REFUSE(init_module), REFUSE(finit_module), REFUSE(delete_module),
    REFUSE(swapon), REFUSE(swapoff), REFUSE(acct), REFUSE(quotactl), REFUSE(quotactl_fd), REFUSE(syslog), REFUSE(vhangup),
    REFUSE(settimeofday), REFUSE(clock_settime), REFUSE(clock_adjtime), REFUSE(adjtimex),
    REFUSE(process_vm_readv), REFUSE(process_vm_writev), REFUSE(kcmp), REFUSE(pidfd_getfd),
#ifdef __x86_64__
    REFUSE(iopl), REFUSE(ioperm), REFUSE(modify_ldt), REFUSE(uselib), REFUSE(_sysctl),
#endif

    UNLESS(unshare, 4),
    LOAD(args[0]), BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (unsigned)NEW_NAMESPACES | CLONE_NEWTIME, 0, 1),
    ANSWER(EPERM), ALLOW,
    /* CLONE_NEWTIME shares its bit with the exit signal here. */
    UNLESS(clone, 4),
    LOAD(args[0]), BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (unsigned)NEW_NAMESPACES, 0, 1),
    ANSWER(EPERM), ALLOW,

    /* Not every address family knows network namespaces: vsock would reach the hypervisor. Nor does all of netlink:
     * the events of the host's devices are told to every network namespace that belongs to the host's user namespace. */
    UNLESS(socket, 11),
    LOAD(args[0]),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 8, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET, 7, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 6, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 1, 0),
    ANSWER(EAFNOSUPPORT),
    LOAD(args[2]),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NETLINK_ROUTE, 2, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NETLINK_SOCK_DIAG, 1, 0),
    ANSWER(EPROTONOSUPPORT),
    ALLOW,

    /* A pair of another kind is no way out, but has the host load the module that knows it. */
    UNLESS(socketpair, 4),
    LOAD(args[0]),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 1, 0),
    ANSWER(EAFNOSUPPORT), ALLOW,

    /* A lease on a log or a row of data lets whoever opens the file on the host wait for 45 s. */
    UNLESS(fcntl, 4),
    LOAD(args[1]),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, F_SETLEASE, 0, 1),
    ANSWER(EINVAL), ALLOW,

    /* Typing into the terminal of whoever ran `exec`. */
    UNLESS(ioctl, 5),
    LOAD(args[1]),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, TIOCSTI, 1, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, TIOCLINUX, 0, 1),
    ANSWER(EPERM), ALLOW,

    ALLOW,
};

int confine_system_calls(struct wsrt_error *err)
{
    struct sock_fprog program = {.len = sizeof FILTER / sizeof *FILTER, .filter = (struct sock_filter *)FILTER};
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) < 0)
        return wsrt_fail(err, "install seccomp filter", "%d instructions", (int)program.len);
    return 0;
}
