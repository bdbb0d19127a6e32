#include "exporter/sandbox.h"

#include "base/box.h"
#include "exporter/sandbox_filter.h"
#include "exporter/sandbox_landlock.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <netdb.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/socket.h>

enum {
	/* A message, its tables (at most 4 times as much) and the compressed profile; */
	MEMORY_BYTES_MAX = 512 * 1024 * 1024,
	/* and what waits, windows for the page, TLS, threads. */
	NETWORK_MEMORY_BYTES_MAX = 1024 * 1024 * 1024,
	FDS_MAX = 16,
	NETWORK_FDS_MAX = 512,
	THREAD_STACK_BYTES = 512 * 1024,
};

static int limit_resources(bool has_network)
{
	const struct box_limit limits[] = {
		{ RLIMIT_CORE, 0 },
		/* Counts threads, those of all processes of our uid: the filter says no to processes. */
		{ RLIMIT_NPROC, has_network ? RLIM_INFINITY : 0 },
		{ RLIMIT_NOFILE, has_network ? NETWORK_FDS_MAX : FDS_MAX },
		{ RLIMIT_AS, has_network ? NETWORK_MEMORY_BYTES_MAX : MEMORY_BYTES_MAX },
	};

	return box_limit(limits, ARRAY_SIZE(limits));
}

/*
 * What glibc loads and reads only when it is first needed. `files` and `dns` are libraries of their
 * own before glibc 2.34.
 */
static int prepare_network(void)
{
	static const char *const services[] = { "libnss_files.so.2", "libnss_dns.so.2" };
	struct addrinfo *found = NULL;
	pthread_attr_t attr;
	int err;

	for (size_t i = 0; i < ARRAY_SIZE(services); i++)
		(void)dlopen(services[i], RTLD_NOW);
	if (!getaddrinfo("localhost", "80", &(struct addrinfo){ .ai_socktype = SOCK_STREAM },
			 &found))
		freeaddrinfo(found);
	/* Many are started and soon gone: a heap and 8 MiB of stack for each would only cost. */
	(void)mallopt(M_ARENA_MAX, 1);
	err = pthread_attr_init(&attr);
	if (err)
		return -err;
	err = pthread_attr_setstacksize(&attr, THREAD_STACK_BYTES);
	if (!err)
		err = pthread_setattr_default_np(&attr);
	(void)pthread_attr_destroy(&attr);
	return -err;
}

int sandbox_hide(void)
{
	return SANDBOX_IS_WHOLE && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) ? -errno : 0;
}

int sandbox_enter(const struct sandbox_conf *conf, int *ret_landlock)
{
	int landlock = 0;
	int err = sandbox_hide();

	if (!err && conf->has_network)
		err = prepare_network();
	if (!err)
		err = box_drop_privileges();
	if (err)
		return err;
	if (SANDBOX_IS_WHOLE) {
		err = limit_resources(conf->has_network);
		if (err)
			return err;
		if (conf->has_network)
			err = sandbox_landlock(conf->output_dir_fd, &landlock);
		if (!err)
			err = sandbox_filter(conf);
		if (err)
			return err;
	}
	*ret_landlock = landlock;
	return 0;
}

bool sandbox_is_outdated(void)
{
	CLEANUP_FD int fd = open("/etc/resolv.conf", O_RDONLY | O_CLOEXEC);

	return fd < 0 && errno == EACCES;
}
