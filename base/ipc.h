/*
 * ipc - messages between the agent and its children, and how children come to life.
 *
 * A channel is a SOCK_SEQPACKET pair, on the child's side descriptor IPC_FD: one packet is one
 * message of a u32 type, a payload, and at most one descriptor that belongs to it. A payload over
 * IPC_INLINE_MAX travels in a sealed memfd beside it; sender and receiver do not see a difference.
 *
 * A message costs the system calls sendmsg, recvmsg, fcntl, fstat, fstatfs, mmap, munmap,
 * memfd_create, write and close: a sandbox has to allow them.
 *
 * May touch: its socket, memfd, fork and exec. Never: interpret a payload.
 */
#ifndef BASE_IPC_H
#define BASE_IPC_H

#include "base/def.h"

enum {
	IPC_FD = 3,
	IPC_INLINE_MAX = 32 * 1024,
	IPC_PAYLOAD_MAX = 64 * 1024 * 1024,
};

/* Type 0 of every protocol: a child's first message, its build's identity (IPC_BUILD_ID). */
enum { IPC_HELLO = 0 };
extern const char ipc_build_id[]; /* the same text in programs of one build */

struct ipc_msg {
	uint32_t type;
	const uint8_t *data; /* borrowed from the struct ipc_in until its next receive */
	size_t len;
	int fd; /* -1, or the descriptor: the receiver's to close */
};

struct ipc_in {
	uint8_t *buf;
	void *map;
	size_t map_len;
};

void ipc_in_fini(struct ipc_in *in);

/* 0; -EAGAIN when the socket is full (nothing was sent); -EPIPE when the peer is gone. fd is borrowed. */
MUST_USE int ipc_send(int sock, uint32_t type, const void *data, size_t len, int fd);
/* 1 and a message; 0 when the peer closed; -EAGAIN; -EBADMSG for what no sender of ours makes. */
MUST_USE int ipc_recv(int sock, struct ipc_in *in, struct ipc_msg *ret);

/* A new sealed memfd with these bytes. */
MUST_USE int ipc_memfd(const char *name, const void *data, size_t len, int *ret_fd);

/* What a child is started with. The agent holds exe_fd for life, so that restarts need no path. */
struct ipc_program {
	const char *name;   /* argv[0] */
	const char *arg;    /* argv[1], or NULL */
	int exe_fd;
	uint64_t caps;      /* bit per capability that the child keeps (ambient); 0 for none */
	uint64_t caps_if_held; /* and of these the ones that we hold when it is started */
};

struct ipc_child {
	pid_t pid;
	int pidfd;
	int sock; /* non-blocking */
};
#define IPC_CHILD_INIT { .pid = -1, .pidfd = -1, .sock = -1 }

/*
 * fork + exec with a clean environment (PATH, LANG=C), descriptors 0 (/dev/null), 1, 2 and IPC_FD
 * only, default signal handling, no_new_privs, parent-death signal SIGKILL. IPC_FD blocks on the
 * child's side; JOURNAL_STREAM, when set, is the one variable that is handed on.
 * An executable that cannot be run is an error here, not a child that ends.
 */
MUST_USE int ipc_spawn(struct ipc_child *ret, const struct ipc_program *program);
/* SIGKILL and reap; a child that cannot be reaped within timeout_ns is left behind: -ETIMEDOUT. */
int ipc_child_kill(struct ipc_child *c, uint64_t timeout_ns);

/*
 * Child's side, before its sandbox: a signal to the whole group is the agent's to heed, which still
 * needs its children to end well. They end when the channel closes, or by SIGKILL.
 */
void ipc_ignore_signals(void);
/* Child's side: sends IPC_HELLO on IPC_FD. Dies with a clear line when IPC_FD is no socket. */
MUST_USE int ipc_hello(void);

#endif
