#include "plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int receive_all(int fd, unsigned char *bytes, size_t length)
{
    while (length > 0) {
        ssize_t received = recv(fd, bytes, length, 0);
        if (received < 0 && errno == EINTR)
            continue;
        if (received <= 0) {
            errno = received == 0 ? EPIPE : errno;
            return -1;
        }
        bytes += received;
        length -= (size_t)received;
    }
    return 0;
}

int plan_receive(int control_fd, struct plan *plan, struct wsrt_error *err)
{
    union {
        char bytes[CMSG_SPACE(sizeof plan->fds)];
        struct cmsghdr aligned;
    } control;
    uint32_t length = 0;
    struct iovec part = {&length, sizeof length};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};

    ssize_t received;
    do
        received = recvmsg(control_fd, &message, MSG_CMSG_CLOEXEC);
    while (received < 0 && errno == EINTR);
    if (received != sizeof length || length < 8 || length > WSRT_PLAN_MAX_BYTES)
        return wsrt_fail_with(err, received < 0 ? errno : EPROTO, "receive plan", "%u bytes", length);
    for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header != NULL; header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        plan->n_fds = (int)((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(plan->fds, CMSG_DATA(header), (size_t)plan->n_fds * sizeof(int));
    }

    plan->bytes = malloc(length);
    if (plan->bytes == NULL)
        return wsrt_fail(err, "allocate plan", "%u bytes", length);
    plan->length = length;
    if (receive_all(control_fd, plan->bytes, length) < 0)
        return wsrt_fail(err, "receive plan", "%u bytes", length);
    uint32_t header[2];
    memcpy(header, plan->bytes, sizeof header);
    if (header[0] != WSRT_PLAN_MAGIC)
        return wsrt_fail_with(err, EPROTO, "read plan", "magic %x: program and package differ", header[0]);
    plan->n_steps = header[1];
    plan->offset = sizeof header;
    return 0;
}

static const unsigned char *take(struct plan *plan, uint32_t bytes)
{
    if (bytes > plan->length - plan->offset)
        return NULL;
    const unsigned char *taken = plan->bytes + plan->offset;
    plan->offset += bytes;
    return taken;
}

static const char *take_text(struct plan *plan)
{
    uint32_t length;
    const unsigned char *field = take(plan, sizeof length);
    if (field == NULL)
        return NULL;
    memcpy(&length, field, sizeof length);
    const char *text = length < WSRT_PLAN_MAX_BYTES ? (const char *)take(plan, length + 1) : NULL;
    return text != NULL && text[length] == '\0' ? text : NULL;
}

int plan_next(struct plan *plan, struct step *step, struct wsrt_error *err)
{
    uint32_t header[3];
    if (plan->n_steps == 0)
        return 0;
    plan->n_steps--;
    const unsigned char *field = take(plan, sizeof header);
    if (field == NULL)
        return wsrt_fail_with(err, EPROTO, "read plan", "offset %u", plan->offset);
    memcpy(header, field, sizeof header);
    if (header[1] > STEP_MAX_NUMBERS || header[2] > STEP_MAX_TEXTS)
        return wsrt_fail_with(err, E2BIG, "read plan", "step %u: %u numbers, %u texts", header[0], header[1], header[2]);
    step->kind = header[0];
    step->n_numbers = (int)header[1];
    step->n_texts = (int)header[2];
    memset(step->numbers, 0, sizeof step->numbers);
    memset(step->texts, 0, sizeof step->texts);
    field = take(plan, header[1] * (uint32_t)sizeof(int64_t));
    if (field == NULL)
        return wsrt_fail_with(err, EPROTO, "read plan", "offset %u", plan->offset);
    memcpy(step->numbers, field, header[1] * sizeof(int64_t));
    for (int i = 0; i < step->n_texts; i++) {
        step->texts[i] = take_text(plan);
        if (step->texts[i] == NULL)
            return wsrt_fail_with(err, EPROTO, "read plan", "offset %u", plan->offset);
    }
    return 1;
}

int plan_fd(const struct plan *plan, const struct step *step, int index)
{
    int64_t number = step->numbers[index];
    if (number < 0)
        return -1;
    return number < plan->n_fds ? plan->fds[number] : -2;
}
