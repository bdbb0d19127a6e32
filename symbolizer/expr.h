/*
 * expr - DWARF expressions of CFI as the steps of symbolizer/msg.h.
 *
 * Source: DWARF 5 section 2.5, less what section 6.4.2 forbids in CFI and what needs an address
 * (DW_OP_addr), a frame or a type.
 */
#ifndef SYMBOLIZER_EXPR_H
#define SYMBOLIZER_EXPR_H

#include "symbolizer/elffile.h"

/*
 * The number of steps written to ops[MSG_EXPR_MAX], or 0: an operation that we do not have, a
 * backward jump, too long, or not valid with `depth` values on the stack (msg_expr_valid()).
 */
uint32_t expr_compile(struct bytes expr, unsigned int depth, struct msg_op *ops);

#endif
