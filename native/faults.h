/* Fault injection, in the build of its own that `make faults` tests (WSRT_BUILD=faults; in any other this file is
 * not read). There it is included before all else in every file of the C core, and turns each call into the C
 * library or the kernel that can fail into one that is counted, and that, at the armed count, fails or ends a
 * process instead of being made.
 *
 * Left alone is what cannot fail in a way that code could answer: close, kill, waitpid, _exit, mutexes, clocks,
 * reading and writing an eventfd that never overflows. A call written as `(setns)(...)` is left alone too. */
#ifndef WSRT_FAULTS_H
#define WSRT_FAULTS_H

enum wsrt_fault_place {
    WSRT_FAULT_IN_HOST, /* the embedding process, and its child until that has become our static program */
    WSRT_FAULT_IN_INIT, /* the static program and those of its children that have not yet become another one */
};

enum wsrt_fault_action {
    WSRT_FAULT_FAIL,
    WSRT_FAULT_DIE,        /* the process that makes the call dies: the host by SIGKILL */
    WSRT_FAULT_KILL_OWNER, /* the host dies: by SIGKILL; elsewhere the call waits, so that the host sees the hit
                              (wsrt_faults_is_hit) and can kill itself */
};

/* From now on count the calls in PLACE from 1 and let the NTH be the one (0: none). CODE is the errno it fails
 * with, 0 for the one usual with that function; with EINTR only calls that a signal can interrupt count. Processes
 * started later are armed like those there are. Returns -1 when there is no memory to share with them. */
int wsrt_faults_arm(int place, long nth, int action, int code);

long wsrt_faults_count(int place);
int wsrt_faults_is_hit(int place);

/* Where the call is that was hit: "native/mount.c:43", "" when none was. */
const char *wsrt_faults_where(int place);

/* What the static program has to find in its environment. */
const char *wsrt_faults_environment(void);

/* Whether the call to be made at WHERE shall fail, errno being set then. */
int wsrt_fault_is_due(int usual_code, const char *where);

#ifdef WSRT_FAULTS

/* All headers that declare one of the functions below, before these become macros. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <search.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "arch.h"

#define WSRT_FAULT_INTERRUPTIBLE 0x10000
#define WSRT_FAULT_LINE_(line) #line
#define WSRT_FAULT_LINE(line) WSRT_FAULT_LINE_(line)
#define WSRT_FAULT_WHERE __FILE__ ":" WSRT_FAULT_LINE(__LINE__)

/* CALL, or FAILED in its place. A function's own name is not expanded again inside its macro. */
#define WSRT_FAULT(failed, usual, call) (wsrt_fault_is_due(usual, WSRT_FAULT_WHERE) ? (failed) : (call))
#define WSRT_FAULT_I(failed, usual, call) WSRT_FAULT(failed, (usual) | WSRT_FAULT_INTERRUPTIBLE, call)

/* Memory and threads. */
#define malloc(...) WSRT_FAULT(NULL, ENOMEM, malloc(__VA_ARGS__))
#define calloc(...) WSRT_FAULT(NULL, ENOMEM, calloc(__VA_ARGS__))
#define realloc(...) WSRT_FAULT(NULL, ENOMEM, realloc(__VA_ARGS__))
#define reallocarray(...) WSRT_FAULT(NULL, ENOMEM, reallocarray(__VA_ARGS__))
#define strdup(...) WSRT_FAULT(NULL, ENOMEM, strdup(__VA_ARGS__))
#define strndup(...) WSRT_FAULT(NULL, ENOMEM, strndup(__VA_ARGS__))
#define asprintf(...) WSRT_FAULT(-1, ENOMEM, asprintf(__VA_ARGS__))
#define tsearch(...) WSRT_FAULT(NULL, ENOMEM, tsearch(__VA_ARGS__))
#define mmap(...) WSRT_FAULT(MAP_FAILED, ENOMEM, mmap(__VA_ARGS__))
#define pthread_create(...) WSRT_FAULT(errno, EAGAIN, pthread_create(__VA_ARGS__))
#define pthread_attr_init(...) WSRT_FAULT(errno, ENOMEM, pthread_attr_init(__VA_ARGS__))

/* Processes and namespaces. */
#define fork() WSRT_FAULT(-1, EAGAIN, fork())
#define clone(...) WSRT_FAULT(-1, ENOSPC, clone(__VA_ARGS__))
#define wsrt_inline_clone3(...) WSRT_FAULT(-errno, ENOSPC, wsrt_inline_clone3(__VA_ARGS__))
#define unshare(...) WSRT_FAULT(-1, ENOSPC, unshare(__VA_ARGS__))
#define setns(...) WSRT_FAULT(-1, ENOMEM, setns(__VA_ARGS__))
#define execvp(...) WSRT_FAULT(-1, ENOMEM, execvp(__VA_ARGS__))
#define prctl(...) WSRT_FAULT(-1, EPERM, prctl(__VA_ARGS__))
#define setgroups(...) WSRT_FAULT(-1, EPERM, setgroups(__VA_ARGS__))
#define setresuid(...) WSRT_FAULT(-1, EAGAIN, setresuid(__VA_ARGS__))
#define setresgid(...) WSRT_FAULT(-1, EPERM, setresgid(__VA_ARGS__))
#define setsid() WSRT_FAULT(-1, EPERM, setsid())
#define sethostname(...) WSRT_FAULT(-1, EPERM, sethostname(__VA_ARGS__))
#define getrlimit(...) WSRT_FAULT(-1, EPERM, getrlimit(__VA_ARGS__))
#define setrlimit(...) WSRT_FAULT(-1, EPERM, setrlimit(__VA_ARGS__))
#define sigtimedwait(...) WSRT_FAULT_I(-1, EAGAIN, sigtimedwait(__VA_ARGS__))
#define sigwaitinfo(...) WSRT_FAULT_I(-1, EINTR, sigwaitinfo(__VA_ARGS__))
#define syscall(...) WSRT_FAULT(-1, ENOMEM, syscall(__VA_ARGS__))

/* Mounts. */
#define mount(...) WSRT_FAULT(-1, ENOMEM, mount(__VA_ARGS__))
#define umount2(...) WSRT_FAULT(-1, EBUSY, umount2(__VA_ARGS__))
#define fsopen(...) WSRT_FAULT(-1, ENOMEM, fsopen(__VA_ARGS__))
#define fsconfig(...) WSRT_FAULT(-1, ENOMEM, fsconfig(__VA_ARGS__))
#define fsmount(...) WSRT_FAULT(-1, ENOMEM, fsmount(__VA_ARGS__))
#define open_tree(...) WSRT_FAULT(-1, ENOMEM, open_tree(__VA_ARGS__))
#define move_mount(...) WSRT_FAULT(-1, ENOMEM, move_mount(__VA_ARGS__))
#define mount_setattr(...) WSRT_FAULT(-1, EPERM, mount_setattr(__VA_ARGS__))

/* Files by name. */
#define open(...) WSRT_FAULT_I(-1, EMFILE, open(__VA_ARGS__))
#define openat(...) WSRT_FAULT_I(-1, EMFILE, openat(__VA_ARGS__))
#define fopen(...) WSRT_FAULT(NULL, EMFILE, fopen(__VA_ARGS__))
#define opendir(...) WSRT_FAULT(NULL, EMFILE, opendir(__VA_ARGS__))
#define mkdir(...) WSRT_FAULT(-1, ENOSPC, mkdir(__VA_ARGS__))
#define mkdirat(...) WSRT_FAULT(-1, ENOSPC, mkdirat(__VA_ARGS__))
#define mknod(...) WSRT_FAULT(-1, ENOSPC, mknod(__VA_ARGS__))
#define mknodat(...) WSRT_FAULT(-1, ENOSPC, mknodat(__VA_ARGS__))
#define symlink(...) WSRT_FAULT(-1, ENOSPC, symlink(__VA_ARGS__))
#define symlinkat(...) WSRT_FAULT(-1, ENOSPC, symlinkat(__VA_ARGS__))
#define linkat(...) WSRT_FAULT(-1, ENOSPC, linkat(__VA_ARGS__))
#define unlinkat(...) WSRT_FAULT(-1, EIO, unlinkat(__VA_ARGS__))
#define renameat2(...) WSRT_FAULT(-1, EIO, renameat2(__VA_ARGS__))
#define readlink(...) WSRT_FAULT(-1, EIO, readlink(__VA_ARGS__))
#define readlinkat(...) WSRT_FAULT(-1, EIO, readlinkat(__VA_ARGS__))
#define access(...) WSRT_FAULT(-1, EIO, access(__VA_ARGS__))
#define faccessat(...) WSRT_FAULT(-1, EIO, faccessat(__VA_ARGS__))
#define lstat(...) WSRT_FAULT(-1, EIO, lstat(__VA_ARGS__))
#define fstatat(...) WSRT_FAULT(-1, EIO, fstatat(__VA_ARGS__))
#define statx(...) WSRT_FAULT(-1, EIO, statx(__VA_ARGS__))
#define statfs(...) WSRT_FAULT(-1, EIO, statfs(__VA_ARGS__))
#define chown(...) WSRT_FAULT(-1, EPERM, chown(__VA_ARGS__))
#define fchownat(...) WSRT_FAULT(-1, EDQUOT, fchownat(__VA_ARGS__))
#define fchmodat(...) WSRT_FAULT(-1, EPERM, fchmodat(__VA_ARGS__))
#define utimensat(...) WSRT_FAULT(-1, EPERM, utimensat(__VA_ARGS__))
#define lgetxattr(...) WSRT_FAULT(-1, EIO, lgetxattr(__VA_ARGS__))
#define llistxattr(...) WSRT_FAULT(-1, EIO, llistxattr(__VA_ARGS__))
#define lsetxattr(...) WSRT_FAULT(-1, ENOSPC, lsetxattr(__VA_ARGS__))
#define chdir(...) WSRT_FAULT(-1, EACCES, chdir(__VA_ARGS__))

/* Files by descriptor. */
#define read(...) WSRT_FAULT_I(-1, EIO, read(__VA_ARGS__))
#define write(...) WSRT_FAULT_I(-1, ENOSPC, write(__VA_ARGS__))
#define pread(...) WSRT_FAULT_I(-1, EIO, pread(__VA_ARGS__))
#define pwrite(...) WSRT_FAULT_I(-1, ENOSPC, pwrite(__VA_ARGS__))
#define getline(...) WSRT_FAULT(-1, ENOMEM, getline(__VA_ARGS__))
#define fdopen(...) WSRT_FAULT(NULL, ENOMEM, fdopen(__VA_ARGS__))
#define fdopendir(...) WSRT_FAULT(NULL, ENOMEM, fdopendir(__VA_ARGS__))
#define readdir(...) WSRT_FAULT(NULL, EIO, readdir(__VA_ARGS__))
#define getdents64(...) WSRT_FAULT(-1, EIO, getdents64(__VA_ARGS__))
#define lseek(...) WSRT_FAULT(-1, EIO, lseek(__VA_ARGS__))
#define ftruncate(...) WSRT_FAULT(-1, ENOSPC, ftruncate(__VA_ARGS__))
#define sendfile(...) WSRT_FAULT_I(-1, ENOSPC, sendfile(__VA_ARGS__))
#define splice(...) WSRT_FAULT_I(-1, ENOMEM, splice(__VA_ARGS__))
#define fstat(...) WSRT_FAULT(-1, EIO, fstat(__VA_ARGS__))
#define fstatfs(...) WSRT_FAULT(-1, EIO, fstatfs(__VA_ARGS__))
#define fchown(...) WSRT_FAULT(-1, EDQUOT, fchown(__VA_ARGS__))
#define fchmod(...) WSRT_FAULT(-1, EPERM, fchmod(__VA_ARGS__))
#define futimens(...) WSRT_FAULT(-1, EPERM, futimens(__VA_ARGS__))
#define flistxattr(...) WSRT_FAULT(-1, EIO, flistxattr(__VA_ARGS__))
#define fchdir(...) WSRT_FAULT(-1, EACCES, fchdir(__VA_ARGS__))
#define ioctl(...) WSRT_FAULT_I(-1, ENOSPC, ioctl(__VA_ARGS__))
#define fcntl(...) WSRT_FAULT(-1, EMFILE, fcntl(__VA_ARGS__))
#define dup2(...) WSRT_FAULT_I(-1, EBADF, dup2(__VA_ARGS__))
#define dup3(...) WSRT_FAULT_I(-1, EBADF, dup3(__VA_ARGS__))
#define pipe2(...) WSRT_FAULT(-1, EMFILE, pipe2(__VA_ARGS__))
#define close_range(...) WSRT_FAULT(-1, ENOMEM, close_range(__VA_ARGS__))

/* Sockets and waiting. */
#define socket(...) WSRT_FAULT(-1, EMFILE, socket(__VA_ARGS__))
#define socketpair(...) WSRT_FAULT(-1, EMFILE, socketpair(__VA_ARGS__))
#define bind(...) WSRT_FAULT(-1, EADDRINUSE, bind(__VA_ARGS__))
#define listen(...) WSRT_FAULT(-1, EADDRINUSE, listen(__VA_ARGS__))
#define accept4(...) WSRT_FAULT_I(-1, EMFILE, accept4(__VA_ARGS__))
#define connect(...) WSRT_FAULT_I(-1, ECONNREFUSED, connect(__VA_ARGS__))
#define shutdown(...) WSRT_FAULT(-1, ENOTCONN, shutdown(__VA_ARGS__))
#define getsockname(...) WSRT_FAULT(-1, ENOBUFS, getsockname(__VA_ARGS__))
#define getsockopt(...) WSRT_FAULT(-1, ENOMEM, getsockopt(__VA_ARGS__))
#define setsockopt(...) WSRT_FAULT(-1, ENOMEM, setsockopt(__VA_ARGS__))
#define send(...) WSRT_FAULT_I(-1, ENOBUFS, send(__VA_ARGS__))
#define sendmsg(...) WSRT_FAULT_I(-1, ENOBUFS, sendmsg(__VA_ARGS__))
#define recv(...) WSRT_FAULT_I(-1, ENOMEM, recv(__VA_ARGS__))
#define recvmsg(...) WSRT_FAULT_I(-1, ENOMEM, recvmsg(__VA_ARGS__))
#define eventfd(...) WSRT_FAULT(-1, EMFILE, eventfd(__VA_ARGS__))
#define epoll_create1(...) WSRT_FAULT(-1, EMFILE, epoll_create1(__VA_ARGS__))
#define epoll_ctl(...) WSRT_FAULT(-1, ENOSPC, epoll_ctl(__VA_ARGS__))
#define epoll_wait(...) WSRT_FAULT_I(-1, EINTR, epoll_wait(__VA_ARGS__))
#define poll(...) WSRT_FAULT_I(-1, ENOMEM, poll(__VA_ARGS__))
#define ppoll(...) WSRT_FAULT_I(-1, ENOMEM, ppoll(__VA_ARGS__))
#define nanosleep(...) WSRT_FAULT_I(-1, EINTR, nanosleep(__VA_ARGS__))

#endif
#endif
