/*
 * sideband - what the kernel says about processes: exec, executable mappings, comm, fork, exit.
 *
 * A dummy software event per CPU with its own mapped ring (128 KiB). sideband_drain() hands over
 * all records that are in the rings now, of all CPUs, sorted by time; what is written while it runs
 * waits for the next. Never sets attr.build_id: the kernel would then mark records of other
 * profilers' events (docs/sideband.md).
 *
 * May touch: perf_event_open(2) and its rings, /sys/devices/system/cpu/online. Never: /proc, files.
 */
#ifndef AGENT_SIDEBAND_H
#define AGENT_SIDEBAND_H

#include "agent/event.h"

struct sideband_conf {
	uint32_t ring_bytes;	/* per CPU, a power of two of pages; 0: 128 KiB */
	/*
	 * sideband_exec_fd() becomes readable at an exec. The kernel has no event for that alone:
	 * a fork, an exit or a new name wakes too. So it wakes once, and again only after a
	 * sideband_drain() that comes SIDEBAND_REST_NS later: at most one wake for each drain.
	 */
	bool wake_on_exec;
	/* Optional: called with sideband_new()'s arg for kernel code that comes and goes. */
	int (*code)(void *arg, const struct event_code *code);
};

#define SIDEBAND_REST_NS (20 * 1000000ull)

struct sideband;

/* On failure *ret_why says in one line (static) what is missing and what to do. */
MUST_USE int sideband_new(struct sideband **ret, const struct sideband_conf *conf, event_fn *fn,
			  void *arg, const char **ret_why);
struct sideband *sideband_free(struct sideband *s);
DEFINE_CLEANUP(struct sideband *, sideband_free);

int sideband_fd(const struct sideband *s);	/* an epoll descriptor: some ring is a quarter full */
int sideband_exec_fd(const struct sideband *s);	/* an epoll descriptor: something called exec; -1 none */
/* Events EVENT_MAP, COMM, FORK, EXIT, LOST, in time order. Stops at fn's first error. */
MUST_USE int sideband_drain(struct sideband *s);
/* Picks up CPUs that came online, drops those that went. Cheap; call once a second. */
MUST_USE int sideband_check_cpus(struct sideband *s);

size_t sideband_map_bytes(const struct sideband *s); /* of the rings */

/*
 * Decodes one record of our own attr; false for a type we do not use, a malformed one, and one of a
 * task without a pid in our namespace. Strings are borrowed from it.
 */
bool sideband_decode(const void *record, size_t len, struct event *ret);
/* The same for PERF_RECORD_KSYMBOL (Linux 5.1); an empty range is malformed. */
bool sideband_decode_code(const void *record, size_t len, struct event_code *ret);
/* The attr whose records sideband_decode() reads; zero it first. */
struct perf_event_attr;
void sideband_attr(struct perf_event_attr *attr);

#endif
