/* What differs by processor architecture; everything else in the C core is portable. */
#ifndef WSRT_ARCH_H
#define WSRT_ARCH_H

#if defined(__x86_64__)
#include "arch_x86_64.h"
#elif defined(__aarch64__)
#include "arch_aarch64.h"
#else
#error "webserv_rt runs on x86-64 and arm64"
#endif

#endif
