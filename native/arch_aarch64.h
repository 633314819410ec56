#ifndef WSRT_ARCH_AARCH64_H
#define WSRT_ARCH_AARCH64_H

#include <linux/audit.h>
#include <sys/syscall.h>

#define WSRT_AUDIT_ARCH AUDIT_ARCH_AARCH64

/* See arch_x86_64.h. */
static inline long __attribute__((always_inline, no_sanitize("address", "undefined")))
wsrt_inline_clone3(void *arguments, unsigned long size)
{
    register long number __asm__("x8") = SYS_clone3;
    register long first __asm__("x0") = (long)arguments;
    register long second __asm__("x1") = (long)size;
    __asm__ volatile("svc #0" : "+r"(first) : "r"(number), "r"(second) : "memory");
    return first;
}

#endif
