#include "connect.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "cleanup.h"

int wsrt_socket_in_namespace(int netns_fd, int home_netns_fd, struct wsrt_error *err)
{
    if (setns(netns_fd, CLONE_NEWNET) < 0)
        return wsrt_fail(err, "setns", "network namespace descriptor %d", netns_fd);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int saved = errno;
    /* In parentheses: what aborts is left out of fault injection (faults.h). */
    if ((setns)(home_netns_fd, CLONE_NEWNET) < 0)
        abort();
    errno = saved;
    return fd < 0 ? wsrt_fail(err, "socket", "network namespace descriptor %d", netns_fd) : fd;
}

int wsrt_connect_in_namespace(int netns_fd, uint16_t port, struct wsrt_error *err)
{
    CLEANUP_FD int home_fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    if (home_fd < 0)
        return wsrt_fail(err, "open", "/proc/thread-self/ns/net");
    CLEANUP_FD int fd = wsrt_socket_in_namespace(netns_fd, home_fd, err);
    if (fd < 0)
        return -1;
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0 && errno != EINPROGRESS)
        return wsrt_fail(err, "connect", "127.0.0.1:%u in the namespace", port);
    return steal_fd(&fd);
}
