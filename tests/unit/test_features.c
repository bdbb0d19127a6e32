#include "agent/features.h"

#include <bpf/btf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

/* ---- the lock of the ring buffer, as kernels declare it ---- */

/* struct bpf_ringbuf { LOCK spinlock; } with a typedef to the struct or union `lock`. */
static bool sleeps_with(struct btf *btf, int lock)
{
	int type = btf__add_typedef(btf, "a_lock_t", lock);
	bool sleeps;

	assert_true(type > 0);
	assert_true(btf__add_struct(btf, "bpf_ringbuf", 64) > 0);
	assert_int_equal(btf__add_field(btf, "spinlock", type, 0, 0), 0);
	sleeps = features_ring_sleeps(btf);
	btf__free(btf);
	return sleeps;
}

static int add_struct(struct btf *btf, const char *name, const char *member, int type)
{
	int id = btf__add_struct(btf, name, 32);

	assert_true(id > 0);
	assert_int_equal(btf__add_field(btf, member, type, 0, 0), 0);
	return id;
}

static int add_raw(struct btf *btf)
{
	int number = btf__add_int(btf, "int", 4, BTF_INT_SIGNED);

	return add_struct(btf, "raw_spinlock", "raw_lock", add_struct(btf, "qspinlock", "val", number));
}

static void the_lock_of_an_rt_kernel_that_is_an_rt_mutex_sleeps(void **state UNUSED)
{
	struct btf *now = btf__new_empty(), *then = btf__new_empty();
	int base = add_struct(now, "rt_mutex_base", "wait_lock", add_raw(now));
	int mutex = add_struct(then, "rt_mutex", "wait_lock", add_raw(then)); /* 5.10 */

	assert_true(sleeps_with(now, add_struct(now, "spinlock", "lock", base)));
	assert_true(sleeps_with(then, add_struct(then, "spinlock", "lock", mutex)));
}

static void raw_locks_and_those_of_other_kernels_do_not_sleep(void **state UNUSED)
{
	struct btf *raw = btf__new_empty(), *plain = btf__new_empty(), *resilient = btf__new_empty();
	int id, rlock = add_raw(plain);

	assert_false(sleeps_with(raw, add_raw(raw)));
	id = btf__add_union(plain, NULL, 4); /* struct spinlock { union { struct raw_spinlock rlock; }; } */
	assert_int_equal(btf__add_field(plain, "rlock", rlock, 0, 0), 0);
	assert_false(sleeps_with(plain, add_struct(plain, "spinlock", "", id)));
	id = btf__add_int(resilient, "int", 4, BTF_INT_SIGNED);
	assert_false(sleeps_with(resilient, add_struct(resilient, "rqspinlock", "locked", id)));
}

static void a_kernel_without_the_ring_buffer_has_no_lock_that_sleeps(void **state UNUSED)
{
	struct btf *btf = btf__new_empty();

	assert_false(features_ring_sleeps(btf));
	btf__free(btf);
}

/* ---- this kernel ---- */

static void a_probe_of_locked_memory_leaves_the_limit_as_it_was(void **state UNUSED)
{
	struct rlimit before, after;
	FILE *f = fopen("/dev/null", "we");

	assert_non_null(f);
	assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &before), 0);
	features_print(f);
	assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &after), 0);
	assert_memory_equal(&before, &after, sizeof(before));
	fclose(f);
}

static void where_nothing_is_lacking_the_error_itself_is_told(void **state UNUSED)
{
	const char *why = NULL;

	if (geteuid() != 0)
		skip();
	assert_int_equal(features_check(&why), 0);
	assert_non_null(strstr(features_why_not_loaded(-EINVAL, 1 << 20), "Invalid argument"));
	assert_non_null(strstr(features_why_not_loaded(-ENOMEM, 1 << 20), "no memory"));
	why = features_why_not_loaded(-EPERM, 1 << 20);
	assert_true(strstr(why, "security module") || strstr(why, "seccomp") || strstr(why, "RLIMIT_MEMLOCK"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_lock_of_an_rt_kernel_that_is_an_rt_mutex_sleeps),
		cmocka_unit_test(raw_locks_and_those_of_other_kernels_do_not_sleep),
		cmocka_unit_test(a_kernel_without_the_ring_buffer_has_no_lock_that_sleeps),
		cmocka_unit_test(a_probe_of_locked_memory_leaves_the_limit_as_it_was),
		cmocka_unit_test(where_nothing_is_lacking_the_error_itself_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
