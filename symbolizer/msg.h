/*
 * msg - what the agent asks the symbolizer, and what it answers.
 *
 * Channel: base/ipc.h. Each request carries a descriptor of the file that it is about, and is
 * answered by one message of the same request id, in order. The symbolizer keeps nothing that a
 * restart would lose, other than caches. Addresses of code in a file are *file offsets*: the agent
 * knows them from mappings alone; the symbolizer turns them into ELF virtual addresses.
 *
 * All integers are fixed width; encode and decode are in symbolizer/msg.c, which agent and
 * symbolizer both link. The agent takes every answer as hostile: the symbolizer parses strangers'
 * files.
 */
#ifndef SYMBOLIZER_MSG_H
#define SYMBOLIZER_MSG_H

#include "base/buf.h"

enum msg_type {
	MSG_ROWS = 1,		/* request and answer */
	MSG_NAMES = 2,
	MSG_LINK = 3,		/* a request without addresses -> struct msg_link */
	MSG_DEBUG = 4,		/* struct msg_debug, and the debug file -> struct msg_debugged */
};

enum {
	MSG_ADDRS_MAX = 512,		/* addresses of one request */
	MSG_ROWS_MAX = 65536,		/* rows of one answer */
	MSG_RULES_MAX = 20,		/* rules of one row */
	MSG_OPS_MAX = 65536,		/* expression steps of one answer */
	MSG_EXPR_MAX = 64,		/* steps of one expression */
	MSG_EXPR_DEPTH = 16,		/* its stack */
	MSG_LINES_MAX = 64,		/* inlined callers of one address */
	MSG_NAME_MAX = 4096,		/* bytes of a function name; longer ones are cut at a UTF-8 boundary */
	MSG_SEGMENTS_MAX = 32,
	MSG_BUILD_ID_MAX = 32,
	MSG_LINK_MAX = 255,		/* bytes of a file name */
	MSG_ALT_MAX = 1023,		/* bytes of a path */
	MSG_REGS_MAX = 33,		/* DWARF register numbers of a row are below it */
};

/* What became of the file; one list is enum, text and metric. */
#define MSG_FILE_RESULTS(X)						\
	X(OK, "ok")							\
	X(NOT_ELF, "not an ELF file")					\
	X(UNSUPPORTED, "another machine or class")			\
	X(TRUNCATED, "section reaches past the file")			\
	X(TOO_BIG, "over a size limit")					\
	X(UNREADABLE, "cannot be read")					\
	X(QUARANTINED, "its parsing failed twice")

enum msg_file_result {
#define X(id, text) MSG_FILE_##id,
	MSG_FILE_RESULTS(X)
#undef X
	MSG_FILE_RESULT_COUNT,
};

const char *msg_file_result_text(enum msg_file_result r);

/* One address of a request. */
enum {
	MSG_ADDR_RETURN = 1 << 0,	/* a return address: looked up at offset - 1 */
	MSG_ADDR_HAVE_ROW = 1 << 1,	/* the asker has its row: only MSG_RES_* flags are wanted, other than for a
					   signal trampoline, which the byte before it does not tell */
};
struct msg_addr {
	uint64_t offset;	/* in the file */
	uint32_t flags;
};

enum {
	MSG_REQUEST_GO = 1 << 0,	/* of rows: msg_rows.go is wanted */
	/* Of names: the file is a perf map or a jitdump, the offsets are addresses in its process's memory. */
	MSG_REQUEST_JIT = 1 << 1,
};
struct msg_request {
	uint64_t id;
	uint64_t file_id;	/* the agent's; never reused while it runs; cache key */
	uint32_t flags;
	uint32_t naddrs;
	struct msg_addr addrs[MSG_ADDRS_MAX];
};

void msg_request_encode(struct bufw *w, const struct msg_request *r);
MUST_USE int msg_request_decode(struct bufr *in, struct msg_request *ret);

/* ---- rows ---- */

/*
 * How one value of the caller is found. `off` is the offset; for expressions it is the index of
 * the first step in msg_rows.ops and `n` the number of steps.
 */
enum msg_rule_kind {
	MSG_RULE_UNDEFINED,	/* it has no value; as a return address: this is the outermost frame */
	MSG_RULE_SAME,		/* unchanged */
	MSG_RULE_CFA_MEM,	/* at memory CFA + off */
	MSG_RULE_CFA_VAL,	/* CFA + off */
	MSG_RULE_REG_MEM,	/* at memory register[reg] + off */
	MSG_RULE_REG_VAL,	/* register[reg] + off */
	/*
	 * At memory expression(). For saved registers the CFA is pushed first; for the CFA and the
	 * return address the expression starts with an empty stack (MSG_OP_CFA where it needs it).
	 */
	MSG_RULE_EXPR_MEM,
	MSG_RULE_EXPR_VAL,	/* expression() */
	MSG_RULE_KIND_COUNT,
};

struct msg_rule {
	uint8_t target;		/* DWARF number of the register that gets the value; 0 for the CFA's rule */
	uint8_t kind;
	uint8_t reg;
	uint8_t n;
	int32_t off;
};

/*
 * Registers of no machine: the stack pointer and the pc at which a goroutine waits for its thread, which
 * runs on Go's system stack. When none waits, they are 0 in an expression, and a row whose CFA is at SP is the
 * outermost frame if it is known that the thread is on that stack, else the last that is known.
 */
enum { MSG_REG_GOROUTINE_PC = 31, MSG_REG_GOROUTINE_SP = 32 };

/* One step of an expression; the DWARF operations that CFI uses, reduced. */
enum msg_op_code {
	MSG_OP_CONST,		/* push n */
	MSG_OP_REG,		/* push register[reg] + n */
	MSG_OP_CFA,		/* push CFA */
	MSG_OP_DEREF,		/* pop address, push the `reg` (1, 2, 4, 8) bytes there */
	MSG_OP_ADD_CONST,	/* top += n */
	MSG_OP_ADD, MSG_OP_SUB, MSG_OP_MUL, MSG_OP_DIV, MSG_OP_MOD,
	MSG_OP_AND, MSG_OP_OR, MSG_OP_XOR, MSG_OP_SHL, MSG_OP_SHR, MSG_OP_SHRA,
	MSG_OP_NEG, MSG_OP_NOT, MSG_OP_ABS,
	MSG_OP_EQ, MSG_OP_NE, MSG_OP_LT, MSG_OP_LE, MSG_OP_GT, MSG_OP_GE,	/* signed */
	MSG_OP_DUP, MSG_OP_DROP, MSG_OP_OVER, MSG_OP_SWAP, MSG_OP_ROT,
	MSG_OP_PICK,		/* push a copy of the entry n below the top */
	/*
	 * Go on at step i + n, where i is this step (n >= 1: 1 is the next one; backward jumps are
	 * refused; i + n may be the expression's end).
	 */
	MSG_OP_SKIP,
	MSG_OP_BRANCH,		/* pop; when not 0, as SKIP */
	MSG_OP_COUNT,
};

struct msg_op {
	uint8_t code;
	uint8_t reg;
	int64_t n;
};

/*
 * Whether these steps run forward to their end with at least one value on the stack, never pop an
 * empty one, never hold more than MSG_EXPR_DEPTH, and have the same depth wherever two ways meet.
 * `depth` is how many values were pushed before the first step.
 */
bool msg_expr_valid(const struct msg_op *ops, uint32_t nops, unsigned int depth);

/* Bytes of the valid UTF-8 character at p (NUL included), 0 when there is none. */
size_t msg_utf8_len(const void *p, size_t left);

/* msg_row.flags */
enum {
	MSG_ROW_SIGNAL = 1 << 0,	/* a signal trampoline: the caller's pc is exact */
	MSG_ROW_END = 1 << 1,		/* outermost frame: entry point, goexit, mstart, RA undefined */
	MSG_ROW_INTERPRETER = 1 << 2,	/* the loop of an interpreter, `language` */
	MSG_ROW_NO_CFI = 1 << 3,	/* known to have none: the unwinder may try the frame pointer */
	MSG_ROW_CLONE = 1 << 4,		/* right behind a clone system call, of the parent: the child, which finds 0
					   as its result, has no caller */
};

/*
 * A row holds for code at file offsets [start, end). Rows that are END or NO_CFI may leave `cfa`
 * and `ra` undefined; all others have both.
 */
struct msg_row {
	uint64_t start;
	uint64_t end;
	uint32_t generation;	/* of memory that is no file; 0 for files */
	uint8_t flags;
	uint8_t language;
	uint8_t nrules;
	struct msg_rule cfa;
	struct msg_rule ra;	/* target is the return address column */
	uint32_t first_rule;	/* in msg_rows.rules: registers that are neither unchanged nor lost */
};

/* What is known of one asked address, in the order of the request. */
enum {
	MSG_RES_ROW = 1 << 0,		/* `row` is its row */
	MSG_RES_AFTER_CALL = 1 << 1,	/* the bytes before it are a call instruction */
	/*
	 * No call can return to it and no code runs into it: it is the first byte of a function (symbol or FDE), or,
	 * in code without CFI, stands behind a jump through a register, where Boost.Context's stacks begin.
	 */
	MSG_RES_FUNCTION_START = 1 << 2,
	MSG_RES_CODE = 1 << 3,		/* it lies in an executable segment of the file */
};
struct msg_result {
	uint32_t row;		/* index */
	uint32_t flags;
};

/* Where the code of a Go program or library finds its thread's g. */
enum msg_go_kind {
	MSG_GO_NONE,	/* not Go's, or not found */
	MSG_GO_FIXED,	/* `off` from the thread pointer */
	MSG_GO_SLOT,	/* that distance stands in 8 bytes of memory, `off` from where the code at `code` is mapped */
	MSG_GO_KIND_COUNT,
};
struct msg_go {
	uint8_t kind;
	bool cgo;		/* C can call it */
	int64_t off;
	uint64_t code;		/* file offset */
};

struct msg_rows {
	uint64_t id;
	uint64_t file_id;
	enum msg_file_result result;
	struct msg_go go;	/* where it was asked for, else 0 */
	uint32_t nrows, nrules, nops, nresults;
	struct msg_row *rows;	/* each array is the decoder's, freed by msg_rows_fini() */
	struct msg_rule *rules;
	struct msg_op *ops;
	struct msg_result *results;
};

void msg_rows_fini(struct msg_rows *r);
void msg_rows_encode(struct bufw *w, const struct msg_rows *r);
/* Checks every index, count, kind and range, and that expressions stay within their stack. */
MUST_USE int msg_rows_decode(struct bufr *in, struct msg_rows *ret);

/* ---- names ---- */

struct msg_segment {
	uint64_t vaddr, mem_bytes, offset, file_bytes;
	uint32_t flags;		/* PF_X ... */
};

struct msg_line {
	uint32_t function;	/* index into msg_names.functions */
	uint32_t line;		/* 0 unknown */
};

struct msg_function {
	char *name;		/* demangled; valid UTF-8 */
	char *system_name;	/* as in the file */
	char *file;		/* "" unknown */
	uint32_t start_line;
};

struct msg_named {
	uint64_t vaddr;		/* ELF virtual address of the asked offset; the offset itself when in no segment */
	uint32_t segment;	/* index, UINT32_MAX in none */
	uint32_t first_line;
	uint32_t nlines;	/* 0: no name; innermost first */
};

struct msg_names {
	uint64_t id;
	uint64_t file_id;
	enum msg_file_result result;
	uint8_t build_id[MSG_BUILD_ID_MAX];
	uint32_t build_id_len;
	uint32_t nsegments;
	struct msg_segment segments[MSG_SEGMENTS_MAX];
	uint32_t nfunctions, nlines, nnamed;
	struct msg_function *functions;
	struct msg_line *lines;
	struct msg_named *named;	/* in the order of the request */
	/*
	 * Addresses that have fewer or no lines than the file tells, because more would have had to be read than is
	 * read at a time or kept. Not sent when it is 0.
	 */
	uint32_t ncut;
};

void msg_names_fini(struct msg_names *n);
void msg_names_encode(struct bufw *w, const struct msg_names *n);
MUST_USE int msg_names_decode(struct bufr *in, struct msg_names *ret);

/* ---- separate debug files ---- */

/* How a file names the one with its symbols and debug information. */
struct msg_link {
	uint64_t id;
	uint64_t file_id;
	bool is_wanted;		/* it has no debug information of its own, and says where it may be: */
	uint8_t build_id[MSG_BUILD_ID_MAX];
	uint32_t build_id_len;
	char name[MSG_LINK_MAX + 1];	/* .gnu_debuglink: a file name, without '/'; "" none */
	uint32_t crc;
};

void msg_link_encode(struct bufw *w, const struct msg_link *l);
MUST_USE int msg_link_decode(struct bufr *in, struct msg_link *ret);

/* The next requests of names for this file are about it and this debug file, if that is what it should be. */
struct msg_debug {
	uint64_t id;
	uint64_t file_id;
	bool is_alt;		/* it is not the debug file, but what dwz moved what that shares with others to */
	bool by_crc;		/* else by build ID */
	uint8_t build_id[MSG_BUILD_ID_MAX];
	uint32_t build_id_len;
	uint32_t crc;		/* of all its bytes: zlib's crc32() */
};

void msg_debug_encode(struct bufw *w, const struct msg_debug *d);
MUST_USE int msg_debug_decode(struct bufr *in, struct msg_debug *ret);

struct msg_debugged {
	uint64_t id;
	uint64_t file_id;
	bool is_alt;
	bool is_taken;
	/* Of a debug file that was taken and needs another one: .gnu_debugaltlink. */
	uint8_t alt_build_id[MSG_BUILD_ID_MAX];
	uint32_t alt_build_id_len;	/* 0: it needs none */
	char alt_path[MSG_ALT_MAX + 1];	/* absolute, or relative to where the debug file is */
};

void msg_debugged_encode(struct bufw *w, const struct msg_debugged *d);
MUST_USE int msg_debugged_decode(struct bufr *in, struct msg_debugged *ret);

#endif
