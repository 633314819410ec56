/* The plan as it was received, see ../plan.h. */
#ifndef WSRT_INIT_PLAN_H
#define WSRT_INIT_PLAN_H

#include <stdint.h>

#include "../error.h"
#include "../plan.h"

enum { STEP_MAX_NUMBERS = 96, STEP_MAX_TEXTS = 1024 };

struct step {
    uint32_t kind;
    int n_numbers;
    int n_texts;
    int64_t numbers[STEP_MAX_NUMBERS];
    const char *texts[STEP_MAX_TEXTS + 1]; /* NULL-terminated; point into the plan */
};

struct plan {
    unsigned char *bytes;
    uint32_t length;
    uint32_t offset;
    uint32_t n_steps;
    int fds[256];
    int n_fds;
};

/* Receive plan and descriptors from the control socket. */
int plan_receive(int control_fd, struct plan *plan, struct wsrt_error *err);

/* Decode the next step; its texts stay valid as long as the plan. Returns 1, 0 at the end, -1 if malformed. */
int plan_next(struct plan *plan, struct step *step, struct wsrt_error *err);

/* The descriptor that number INDEX of the step names, -1 for a negative index, -2 if there is no such one. */
int plan_fd(const struct plan *plan, const struct step *step, int index);

#endif
