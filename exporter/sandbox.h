/*
 * sandbox - what is left of the exporter's rights: its descriptors and memory.
 *
 * No capabilities, no new privileges, no core dumps, bounded memory and descriptors, and a list of
 * system calls outside of which the kernel kills the process (and names the call in its log).
 * There is no exec, no fork, no kill, no ptrace and no executable memory. For `record` there is also
 * no open and no socket.
 *
 * With the network: sockets of AF_INET, AF_INET6, AF_UNIX and AF_NETLINK (the resolver's), threads
 * (libcurl's resolver has one), and reading what libcurl needs (SANDBOX_READS); the output directory
 * is the one place that can be written to. Landlock (Linux 5.13) holds what may be read; where there is none,
 * the rights of our uid do. *ret_landlock says which version of it, 0 none. Names are resolved by glibc's own
 * `files` and `dns`: other services of nsswitch.conf are code that cannot be loaded any more.
 *
 * A build with a sanitizer has neither filter nor limits: its runtime reserves terabytes and, at
 * the end, forks and looks into its own memory.
 */
#ifndef EXPORTER_SANDBOX_H
#define EXPORTER_SANDBOX_H

#include "base/def.h"

#if defined(__SANITIZE_ADDRESS__)
#define SANDBOX_IS_WHOLE false
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANDBOX_IS_WHOLE false
#endif
#endif
#ifndef SANDBOX_IS_WHOLE
#define SANDBOX_IS_WHOLE true
#endif

/* Files and directories; those that a host does not have are no loss. */
#define SANDBOX_READS(X)                                                                      \
	/* the resolver */                                                                    \
	X("/etc/resolv.conf")                                                                 \
	X("/etc/hosts") X("/etc/nsswitch.conf") X("/etc/host.conf") X("/etc/gai.conf")        \
		X("/etc/services") X("/run/systemd/resolve") X("/run/resolvconf")             \
			X("/run/NetworkManager") /* certificates */                           \
		X("/etc/ssl") X("/etc/pki") X("/etc/ca-certificates") X("/usr/lib/ssl")       \
			X("/usr/share/ca-certificates") X("/usr/local/share/ca-certificates") \
				X("/usr/share/pki")

struct sandbox_conf {
	bool has_network;
	int output_dir_fd; /* -1 none */
};

/* Before anything that is secret comes: others of our uid, which may be nobody's, cannot look in. */
MUST_USE int sandbox_hide(void);
/* For good. -errno when any part fails: the caller must not go on. */
MUST_USE int sandbox_enter(const struct sandbox_conf *conf, int *ret_landlock);
/*
 * Landlock knows files, not names: when /etc/resolv.conf is replaced, the new one cannot be read, and
 * only a new process can have the right to it.
 */
bool sandbox_is_outdated(void);

#endif
