/*
 * plugin_host [SECONDS] - loads and unloads two libraries in turn, which get the same address, and calls
 * spin through them, while a thread spins on its own.
 *
 * Expected, root first: _start, __libc_start_main, (its helper), main, host, plugin_one or plugin_two,
 * spin; in the loader: host, dlopen or dlclose, ...; of the thread: ..., thread_main, spin.
 */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "workload.h"

static atomic_bool done;

static NOINLINE void spin(uint64_t rounds)
{
	for (uint64_t i = 0; i < rounds; i++)
		work();
}

static void *thread_main(void *arg)
{
	while (!done)
		spin(10);
	return arg;
}

static NOINLINE void host(const char *directory, const char *name)
{
	void (*plugin)(void (*)(uint64_t), uint64_t);
	char path[PATH_MAX];
	void *library, *p;

	if (snprintf(path, sizeof(path), "%s/lib%s.so", directory, name) >= (int)sizeof(path))
		exit(3);
	library = dlopen(path, RTLD_NOW);
	p = library ? dlsym(library, name) : NULL;
	if (!p) {
		fprintf(stderr, "%s\n", dlerror());
		exit(3);
	}
	memcpy(&plugin, &p, sizeof(plugin));
	plugin(spin, 2);
	dlclose(library);
	keep(1);
}

int main(int argc, char **argv)
{
	uint64_t end = cpu_ns() + (uint64_t)(number_arg(argc, argv, 1, 1) * 1e9);
	char self[PATH_MAX] = "", *slash;
	pthread_t thread;

	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return 3;
	slash = strrchr(self, '/');
	if (!slash || pthread_create(&thread, NULL, thread_main, NULL))
		return 3;
	*slash = '\0';
	for (int i = 0; cpu_ns() < end; i++)
		host(self, i % 2 ? "plugin_two" : "plugin_one");
	done = true;
	return pthread_join(thread, NULL);
}
