/*
 * sigframe - how large the extended state in a signal's frame is on this machine.
 *
 * The kernel saves what XCR0 enables, in the layout that CPUID leaf 0xd tells, and 4 bytes of a magic
 * number (arch/x86/kernel/fpu/signal.c); since 5.16 without AMX tiles for programs that did not
 * ask for them. So there are two sizes. The architecture's part is sigframe_x86_64.c.
 *
 * May touch: CPUID. Never: anything else.
 */
#ifndef AGENT_SIGFRAME_H
#define AGENT_SIGFRAME_H

#include "base/def.h"
#include "bpf/abi.h"

void sigframe_xsave_bytes(uint32_t ret[ABI_XSAVE_SIZES]); /* 0: no such size */

#endif
