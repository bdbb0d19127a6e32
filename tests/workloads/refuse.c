/*
 * refuse CALL ERROR COMMAND ARGS...: runs the command under a seccomp filter, as a container or a
 * service manager has it: CALL fails with ERROR. CALL is bpf or perf_event_open; with :N only bpf(2)'s
 * command number N, or perf_event_open(2) with flags of the value N.
 */
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "workload.h"

static int error_of(const char *name)
{
	static const struct {
		const char *name;
		int error;
	} errors[] = { { "EPERM", EPERM }, { "EACCES", EACCES }, { "ENOSYS", ENOSYS }, { "EINVAL", EINVAL } };

	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		if (strcmp(errors[i].name, name) == 0)
			return errors[i].error;
	}
	return -1;
}

/* `value` of argument number `argument`; -1: any. */
static int enter(unsigned int call, unsigned int argument, int value, int error)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 (unsigned int)offsetof(struct seccomp_data, args) + 8 * argument),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned int)value, 0, (unsigned char)(value >= 0)),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned int)error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog filter = { sizeof(code) / sizeof(code[0]), code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -1;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

int main(int argc, char **argv)
{
	int error = argc > 3 ? error_of(argv[2]) : -1;
	char *value;

	if (error < 0) {
		fprintf(stderr, "usage: refuse bpf[:N]|perf_event_open[:N] EPERM|EACCES|ENOSYS|EINVAL COMMAND ARGS...\n");
		return 64;
	}
	value = strchr(argv[1], ':');
	if (strncmp(argv[1], "bpf", 3) == 0 ? enter(SYS_bpf, 0, value ? atoi(value + 1) : -1, error) :
					      enter(SYS_perf_event_open, 4, value ? atoi(value + 1) : -1, error)) {
		perror("refuse");
		return 70;
	}
	execvp(argv[3], argv + 3);
	perror(argv[3]);
	return 71;
}
