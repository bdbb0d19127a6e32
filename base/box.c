#include "base/box.h"

#include <cap-ng.h>
#include <errno.h>
#include <linux/capability.h>
#include <sys/prctl.h>

int box_drop_privileges(void)
{
	capng_select_t what = CAPNG_SELECT_CAPS;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return -errno;
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0))
		return -errno;
	if (capng_get_caps_process())
		return -EPERM;
	if (capng_have_capability(CAPNG_EFFECTIVE, CAP_SETPCAP))
		what = CAPNG_SELECT_BOTH;
	capng_clear(CAPNG_SELECT_BOTH);
	return capng_apply(what) ? -EPERM : 0;
}

int box_limit(const struct box_limit *limits, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct rlimit now;

		if (getrlimit(limits[i].resource, &now))
			return -errno;
		now.rlim_max = MIN(limits[i].max, now.rlim_max);
		now.rlim_cur = MIN(limits[i].max, now.rlim_cur);
		if (setrlimit(limits[i].resource, &now))
			return -errno;
	}
	return 0;
}
