#ifndef WSRT_ARCH_X86_64_H
#define WSRT_ARCH_X86_64_H

#include <linux/audit.h>
#include <sys/syscall.h>

#define WSRT_AUDIT_ARCH AUDIT_ARCH_X86_64

/* clone3 as vfork needs it: no function call between the system call and the caller's frame, because parent
 * and child return on one stack and the child would overwrite the return address. */
static inline long __attribute__((always_inline, no_sanitize("address", "undefined")))
wsrt_inline_clone3(void *arguments, unsigned long size)
{
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"((long)SYS_clone3), "D"(arguments), "S"(size)
                     : "rcx", "r11", "memory");
    return result;
}

#endif
