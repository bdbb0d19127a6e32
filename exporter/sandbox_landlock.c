#include "exporter/sandbox_landlock.h"

#include "exporter/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* As in linux/landlock.h, whose older versions lack the newer rights. */
enum { VERSION_FLAG = 1, RULE_PATH_BENEATH = 1 };

enum right {
	EXECUTE = 1 << 0,
	WRITE_FILE = 1 << 1,
	READ_FILE = 1 << 2,
	READ_DIR = 1 << 3,
	REMOVE_FILE = 1 << 5,
	MAKE_REG = 1 << 8,
	TRUNCATE = 1 << 14,

	READ = READ_FILE | READ_DIR,
	OUTPUT = READ | WRITE_FILE | MAKE_REG | REMOVE_FILE | TRUNCATE,
};

enum { SCOPE_ABSTRACT_UNIX_SOCKET = 1 << 0, SCOPE_SIGNAL = 1 << 1 };

struct ruleset_attr {
	uint64_t handled_access_fs;
	uint64_t handled_access_net; /* version 4 */
	uint64_t scoped;	     /* version 6 */
};

struct path_beneath_attr {
	uint64_t allowed_access;
	int32_t parent_fd;
} __attribute__((packed));

/* How many rights on files a version knows; what it does not know it refuses. */
static uint64_t known_rights(int version)
{
	static const int nrights[] = { 0, 13, 14, 15, 15, 16 }; /* refer, truncate, ioctl_dev */
	size_t i = MIN((size_t)version, ARRAY_SIZE(nrights) - 1);

	return (1ull << nrights[i]) - 1;
}

static int new_ruleset(int version)
{
	struct ruleset_attr attr = { .handled_access_fs = known_rights(version) };
	size_t size = offsetof(struct ruleset_attr, handled_access_net);
	int fd;

	if (version >= 6) {
		attr.scoped = SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL;
		size = sizeof(attr);
	}
	fd = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0);
	return fd < 0 ? -errno : fd;
}

static int grant(int ruleset, int fd, uint64_t rights)
{
	struct path_beneath_attr attr = { .allowed_access = rights, .parent_fd = fd };
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (!S_ISDIR(st.st_mode))
		attr.allowed_access &= ~(uint64_t)READ_DIR; /* refused for what is no directory */
	return syscall(SYS_landlock_add_rule, ruleset, RULE_PATH_BENEATH, &attr, 0) ? -errno : 0;
}

static int grant_reads(int ruleset)
{
#define X(path) path,
	static const char *const reads[] = { SANDBOX_READS(X) };
#undef X

	for (size_t i = 0; i < ARRAY_SIZE(reads); i++) {
		CLEANUP_FD int fd = open(reads[i], O_PATH | O_CLOEXEC);
		int err = fd < 0 ? 0 : grant(ruleset, fd, READ);

		if (err)
			return err;
	}
	return 0;
}

int sandbox_landlock(int output_dir_fd, int *ret_version)
{
	CLEANUP_FD int ruleset = -1;
	int version = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, VERSION_FLAG);
	int err;

	if (version < 0 && (errno == ENOSYS || errno == EOPNOTSUPP || errno == EPERM)) {
		*ret_version = 0; /* EPERM: the filter of a container */
		return 0;
	}
	if (version <= 0)
		return version ? -errno : -EINVAL;
	ruleset = new_ruleset(version);
	if (ruleset < 0)
		return ruleset;
	err = grant_reads(ruleset);
	if (!err && output_dir_fd >= 0)
		err = grant(ruleset, output_dir_fd, OUTPUT & known_rights(version));
	if (err)
		return err;
	if (syscall(SYS_landlock_restrict_self, ruleset, 0))
		return -errno;
	*ret_version = version;
	return 0;
}
