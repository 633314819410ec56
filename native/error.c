#include "error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int record(struct wsrt_error *err, int code, const char *step, const char *format, va_list args)
{
    if (err != NULL && err->code == 0) {
        err->code = code != 0 ? code : EIO;
        snprintf(err->step, sizeof err->step, "%s", step);
        vsnprintf(err->object, sizeof err->object, format, args);
    }
    errno = code;
    return -1;
}

int wsrt_fail(struct wsrt_error *err, const char *step, const char *object_format, ...)
{
    int code = errno;
    va_list args;
    va_start(args, object_format);
    record(err, code, step, object_format, args);
    va_end(args);
    return -1;
}

int wsrt_fail_with(struct wsrt_error *err, int code, const char *step, const char *object_format, ...)
{
    va_list args;
    va_start(args, object_format);
    record(err, code, step, object_format, args);
    va_end(args);
    return -1;
}
