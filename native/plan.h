/* The plan: what the static program does, as a flat list of steps that it carries out in order. Policy (which
 * mounts, which masks, which services) is the runtime's; the program only interprets.
 *
 * Encoding, little-endian, every field 4 bytes unless said otherwise:
 *   plan   = magic, n_steps, step*
 *   step   = kind, n_numbers, n_texts, number* (8 bytes, signed), text*
 *   text   = length without NUL, the bytes, NUL
 * "fd" below is an index into the descriptors handed over. */
#ifndef WSRT_PLAN_H
#define WSRT_PLAN_H

enum { WSRT_PLAN_MAGIC = 0x31545257, WSRT_PLAN_MAX_BYTES = 4 << 20 };

enum wsrt_step_kind {
    WSRT_STEP_JOIN_CGROUP = 1, /* fd: a v1 `tasks` file; joins the process itself */
    WSRT_STEP_UNSHARE,         /* namespace flags */
    WSRT_STEP_ENTER,           /* fd, namespace flags: setns on a namespace descriptor or a pidfd */
    WSRT_STEP_HOST_NAME,       /* ; name */
    WSRT_STEP_ROOT,            /* fd: make this detached mount the root and drop the old one */
    WSRT_STEP_MOUNT,           /* flags; type, target, data */
    WSRT_STEP_ATTACH,          /* fd; target: attach a detached mount */
    WSRT_STEP_MASK,            /* ; path: hide a file or directory, if there is one */
    WSRT_STEP_READ_ONLY,       /* ; path: bind on itself, read-only, if there is one */
    WSRT_STEP_DEVICES,         /* id of root: make the usual nodes and links in /dev */
    WSRT_STEP_OPEN_FILES,      /* soft limit of open files, within the present hard limit */
    WSRT_STEP_CONFINE,         /* fd of a user namespace, then the capabilities kept (a bit mask):
                                  enter it, become its root, drop the rest, no_new_privs, seccomp */
    WSRT_STEP_SERVICE,         /* see struct service in init/service.h; started by SERVE, in order */
    WSRT_STEP_SERVE,           /* stop signal, fd of the log: report success, start the services, be pid 1 */
    WSRT_STEP_EXEC,            /* as SERVICE: report success and become that program */
    WSRT_STEP_OWN_NAMESPACE,   /* user of the host: make a user namespace that is this user's, report success, and keep
                                  it until the host lets go of the control socket */
    WSRT_STEP_FORK,            /* fd of a cgroup v2 directory or -1: go on in a child, born in that group and in the
                                  entered pid namespace; the process itself waits, and ends as the child did */
};

#endif
