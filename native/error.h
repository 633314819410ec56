/* Errors carry the step, the object and errno; nothing is printed and nothing is kept between calls. */
#ifndef WSRT_ERROR_H
#define WSRT_ERROR_H

#include <stddef.h>

struct wsrt_error {
    int code;         /* errno of the failing step; 0 when nothing failed */
    char step[48];    /* what was being done: "mount overlay" */
    char object[208]; /* to what: "instances/17/upper" */
};

/* Record STEP on the formatted object with the present errno (EIO when errno is 0); returns -1, so that
 * `return wsrt_fail(err, ...)` reads as the failure it is. The first error of a call is kept: what a
 * clean-up path meets afterwards is not the cause. ERR may be NULL. */
int wsrt_fail(struct wsrt_error *err, const char *step, const char *object_format, ...)
    __attribute__((format(printf, 3, 4)));

/* As wsrt_fail, with an errno of one's own. */
int wsrt_fail_with(struct wsrt_error *err, int code, const char *step, const char *object_format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
