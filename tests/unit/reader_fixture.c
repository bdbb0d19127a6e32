#include "tests/unit/reader_fixture.h"

#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "agent/reader.h"
#include "agent/rights.h"

enum { NOBODY = 65534 };

struct ipc_program reader_fixture_program(const char *mode, int exe_fd)
{
	return (struct ipc_program){
		.name = "reader",
		.arg = mode,
		.exe_fd = exe_fd,
		.caps = rights_reader_start_caps() | 1ull << CAP_SETUID | 1ull << CAP_SETGID,
	};
}

int reader_fixture_main(void)
{
	const uint64_t caps = rights_reader_start_caps();
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2];

	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) || setgroups(0, NULL) || setresgid(NOBODY, NOBODY, NOBODY) ||
	    setresuid(NOBODY, NOBODY, NOBODY))
		return 1;
	for (unsigned int i = 0; i < 2; i++) {
		uint32_t half = (uint32_t)(caps >> (32 * i));

		d[i] = (struct __user_cap_data_struct){ half, half, 0 };
	}
	if (syscall(SYS_capset, &h, d))
		return 1;
	return reader_main();
}
