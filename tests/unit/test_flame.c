#include "exporter/flame.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/alloc_fail.h"
#include "tests/unit/export_fixture.h"

static struct flame *flame;

static int setup(void **state)
{
	(void)state;
	return flame_new(&flame);
}

static int teardown(void **state)
{
	(void)state;
	flame = flame_free(flame);
	return 0;
}

static void name_of(uint32_t frame, char ret[64])
{
	uint32_t name, module;
	const char *s;
	size_t len;

	if (frame == FLAME_NONE) {
		strcpy(ret, "root");
		return;
	}
	flame_frame(flame, frame, &name, &module);
	s = flame_text(flame, name, &len);
	snprintf(ret, 64, "%.*s", (int)len, s);
}

/* "main 1/2 {...}": name, self/total in ms, children. */
static void print(const struct flame_tree *t, FILE *out, uint32_t node)
{
	bool any = false;
	char name[64];

	name_of(t->nodes[node].frame, name);
	fprintf(out, "%s %.2f/%.2f", name, (double)t->nodes[node].self / 1e6,
		(double)t->nodes[node].total / 1e6);
	for (uint32_t i = node + 1; i < t->n; i++) {
		if (t->nodes[i].parent != node)
			continue;
		fputs(any ? ", " : " {", out);
		any = true;
		print(t, out, i);
	}
	if (any)
		fputs("}", out);
}

static void check_tree(uint32_t max_nodes, const char *wanted)
{
	struct flame_tree t = {};
	char *text = NULL;
	size_t len;
	FILE *out;

	assert_int_equal(flame_prune(flame, max_nodes, &t), 0);
	out = open_memstream(&text, &len);
	print(&t, out, 0);
	fclose(out);
	assert_string_equal(text, wanted);
	free(text);
	free(t.nodes);
}

/* What holds of every tree: preorder, and a total is its self and its children's totals. */
static void check_sums(const struct flame_tree *t, uint64_t total)
{
	CLEANUP_FREE uint64_t *sums = calloc(t->n, sizeof(*sums));
	CLEANUP_FREE uint32_t *open = calloc(t->n, sizeof(*open));
	uint32_t depth = 0;

	assert_int_equal(t->nodes[0].parent, FLAME_NONE);
	assert_int_equal(t->nodes[0].frame, FLAME_NONE);
	assert_int_equal(t->nodes[0].total, total);
	for (uint32_t i = 1; i < t->n; i++) {
		while (depth && open[depth] != t->nodes[i].parent)
			depth--;
		assert_int_equal(open[depth], t->nodes[i].parent);
		open[++depth] = i;
		sums[t->nodes[i].parent] += t->nodes[i].total;
	}
	for (uint32_t i = 0; i < t->n; i++)
		assert_int_equal(t->nodes[i].total, t->nodes[i].self + sums[i]);
}

static void stacks_become_a_tree_with_inlined_frames(void **state)
{
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	assert_int_equal(flame_add(flame, &f.batch, NULL), 0);
	assert_int_equal(flame_nsamples(flame), 8);
	assert_int_equal(flame_nanoseconds(flame), 80130000);
	/* Two call sites of spin are one frame; the kernel thread's function is a root's child. */
	check_tree(100, "root 0.00/80.13 {__libc_start_main 0.00/70.20 {main 0.00/70.20 {spin "
			"20.20/70.20 {twice 50.00/50.00}}}, do_syscall_64 9.93/9.93}");
}

static void several_windows_add_up(void **state)
{
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	assert_int_equal(flame_add(flame, &f.batch, NULL), 0);
	assert_int_equal(flame_add(flame, &f.batch, NULL), 0);
	assert_int_equal(flame_nsamples(flame), 16);
	check_tree(100, "root 0.00/160.26 {__libc_start_main 0.00/140.40 {main 0.00/140.40 {spin "
			"40.40/140.40 {twice 100.00/100.00}}}, do_syscall_64 19.86/19.86}");
}

static void only_wanted_subjects_count(void **state)
{
	static const bool is_wanted[] = { false, true };
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	assert_int_equal(flame_add(flame, &f.batch, is_wanted), 0);
	assert_int_equal(flame_nsamples(flame), 1);
	check_tree(100, "root 0.00/9.93 {do_syscall_64 9.93/9.93}");
}

static void nothing_is_a_root(void **state)
{
	struct flame_entry *top;
	uint32_t n;

	(void)state;
	check_tree(2, "root 0.00/0.00");
	assert_int_equal(flame_top(flame, 10, &top, &n), 0);
	assert_int_equal(n, 0);
	free(top);
}

static void a_sample_without_a_stack_shows(void **state)
{
	struct export_fixture f;

	(void)state;
	export_fixture_init(&f);
	for (uint32_t i = 0; i < f.batch.nsamples; i++)
		f.samples[i].nframes = 0;
	assert_int_equal(flame_add(flame, &f.batch, NULL), 0);
	check_tree(100, "root 0.00/80.13 {[no stack] 80.13/80.13}");
}

static void what_is_pruned_is_in_other(void **state)
{
	struct export_fixture f;
	struct flame_tree t = {};

	(void)state;
	export_fixture_init(&f);
	assert_int_equal(flame_add(flame, &f.batch, NULL), 0);
	check_tree(2, "root 0.00/80.13 {(other) 80.13/80.13}");
	check_tree(
		4,
		"root 0.00/80.13 {__libc_start_main 0.00/70.20 {(other) 70.20/70.20}, (other) 9.93/9.93}");
	check_tree(5, "root 0.00/80.13 {__libc_start_main 0.00/70.20 {main 0.00/70.20 {(other) "
		      "70.20/70.20}}, (other) 9.93/9.93}");
	check_tree(6, "root 0.00/80.13 {__libc_start_main 0.00/70.20 {main 0.00/70.20 {spin "
		      "20.20/70.20 {twice 50.00/50.00}}}, do_syscall_64 9.93/9.93}");
	assert_int_equal(flame_prune(flame, 4, &t), 0);
	assert_int_equal(t.npruned, 4);
	assert_int_equal(t.other_self, 80130000);
	free(t.nodes);
}

static void control_bytes_and_no_utf8_are_repaired(void **state)
{
	struct export_fixture f;
	const char *s;
	uint32_t name, module;
	size_t len;

	(void)state;
	export_fixture_init(&f);
	f.strings[f.functions[3].name] = (struct export_string){ "a\xff\0b", 4 };
	assert_int_equal(flame_add(flame, &f.batch, NULL), 0);
	for (uint32_t i = 0; i < flame_nframes(flame); i++) {
		flame_frame(flame, i, &name, &module);
		s = flame_text(flame, name, &len);
		if (*s == 'a')
			assert_memory_equal(s,
					    "a\xef\xbf\xbd\xef\xbf\xbd"
					    "b",
					    8);
	}
}

/* frames[] as a stack of spin, spin, main: leaf first. */
static void recursion_counts_once_in_total(void **state)
{
	static const uint32_t frames[] = { 4, 4, 1 };
	struct flame_entry *top;
	struct export_fixture f;
	char name[64];
	uint32_t n;

	(void)state;
	export_fixture_init(&f);
	memcpy(f.frames, frames, sizeof(frames));
	f.batch.nsamples = 1;
	f.samples[0] = (struct export_sample){ 0, 1, 1, 0, 3, 3, 30000000 };
	assert_int_equal(flame_add(flame, &f.batch, NULL), 0);
	assert_int_equal(flame_top(flame, 10, &top, &n), 0);
	assert_int_equal(n, 2);
	name_of(top[0].frame, name);
	assert_string_equal(name, "spin");
	assert_int_equal(top[0].self, 30000000);
	assert_int_equal(top[0].total, 30000000);
	name_of(top[1].frame, name);
	assert_string_equal(name, "main");
	assert_int_equal(top[1].self, 0);
	assert_int_equal(top[1].total, 30000000);
	free(top);
}

static void top_has_those_with_most_self_and_most_total(void **state)
{
	struct flame_entry *top;
	struct export_fixture f;
	char name[64];
	uint32_t n;

	(void)state;
	export_fixture_init(&f);
	assert_int_equal(flame_add(flame, &f.batch, NULL), 0);
	assert_int_equal(flame_top(flame, 2, &top, &n), 0);
	assert_int_equal(n, 2);
	name_of(top[0].frame, name);
	assert_string_equal(name, "twice");
	name_of(top[1].frame, name);
	assert_string_equal(name, "spin");
	assert_int_equal(top[1].self, 20200000);
	assert_int_equal(top[1].total, 70200000);
	free(top);
}

/* Random stacks over many functions, whose tree is pruned to every size. */
static void sums_hold_however_much_is_pruned(void **state)
{
	enum { NFUNCTIONS = 50, NSAMPLES = 400, DEPTH = 12 };
	static char names[NFUNCTIONS][16];
	static struct export_string strings[NFUNCTIONS + 1];
	static struct export_function functions[NFUNCTIONS];
	static struct export_line lines[NFUNCTIONS];
	static struct export_location locations[NFUNCTIONS];
	static struct export_sample samples[NSAMPLES];
	static uint32_t frames[NSAMPLES * DEPTH];
	struct export_mapping mapping = {};
	struct export_subject subject = {};
	struct export_batch b = { .nstrings = NFUNCTIONS + 1,
				  .nfunctions = NFUNCTIONS,
				  .nlines = NFUNCTIONS,
				  .nlocations = NFUNCTIONS,
				  .nsamples = NSAMPLES,
				  .nframes = NSAMPLES * DEPTH,
				  .nmappings = 1,
				  .nsubjects = 1,
				  .strings = strings,
				  .functions = functions,
				  .lines = lines,
				  .locations = locations,
				  .samples = samples,
				  .frames = frames,
				  .mappings = &mapping,
				  .subjects = &subject };
	uint64_t total = 0;
	uint32_t x = 42;

	(void)state;
	strings[0] = (struct export_string){ "", 0 };
	for (uint32_t i = 0; i < NFUNCTIONS; i++) {
		snprintf(names[i], sizeof(names[i]), "f%u", i);
		strings[i + 1] = (struct export_string){ names[i], (uint32_t)strlen(names[i]) };
		functions[i].name = i + 1;
		lines[i].function = i;
		locations[i] = (struct export_location){ .first_line = i, .nlines = 1 };
	}
	for (uint32_t i = 0; i < NSAMPLES * DEPTH; i++) {
		x = x * 1664525 + 1013904223;
		frames[i] = (x >> 24) % (i % DEPTH > 6 ? 3 : NFUNCTIONS);
	}
	for (uint32_t i = 0; i < NSAMPLES; i++) {
		x = x * 1664525 + 1013904223;
		samples[i] = (struct export_sample){ .first_frame = i * DEPTH,
						     .nframes = DEPTH,
						     .count = 1,
						     .nanoseconds = 1 + (x >> 20) };
		total += samples[i].nanoseconds;
	}
	assert_int_equal(flame_add(flame, &b, NULL), 0);
	for (uint32_t max = 2; max < 5000; max = max * 5 / 3) {
		struct flame_tree t = {};
		uint64_t others = 0;
		char name[64];

		assert_int_equal(flame_prune(flame, max, &t), 0);
		assert_true(t.n <= max);
		check_sums(&t, total);
		for (uint32_t i = 0; i < t.n; i++) {
			name_of(t.nodes[i].frame, name);
			others += strcmp(name, "(other)") ? 0 : t.nodes[i].self;
		}
		assert_int_equal(others, t.other_self);
		free(t.nodes);
	}
}

static int make_all(const struct export_batch *b)
{
	CLEANUP(flame_freep) struct flame *f = NULL;
	struct flame_tree t = {};
	struct flame_entry *top;
	uint32_t n;
	int err;

	err = flame_new(&f);
	if (!err)
		err = flame_add(f, b, NULL);
	if (!err)
		err = flame_prune(f, 4, &t);
	free(t.nodes);
	if (!err)
		err = flame_top(f, 10, &top, &n);
	if (!err)
		free(top);
	return err;
}

static void it_survives_any_failed_allocation(void **state)
{
	struct export_fixture f;
	int err = -1;

	(void)state;
	export_fixture_init(&f);
	for (long nth = 1; err; nth++) {
		alloc_fail_nth(nth);
		err = make_all(&f.batch);
		alloc_fail_nth(0);
		assert_true(err == 0 || err == -ENOMEM);
		assert_true(nth < 1000);
	}
}

#define WITH_FLAME(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_FLAME(stacks_become_a_tree_with_inlined_frames),
		WITH_FLAME(several_windows_add_up),
		WITH_FLAME(only_wanted_subjects_count),
		WITH_FLAME(nothing_is_a_root),
		WITH_FLAME(a_sample_without_a_stack_shows),
		WITH_FLAME(what_is_pruned_is_in_other),
		WITH_FLAME(control_bytes_and_no_utf8_are_repaired),
		WITH_FLAME(recursion_counts_once_in_total),
		WITH_FLAME(top_has_those_with_most_self_and_most_total),
		WITH_FLAME(sums_hold_however_much_is_pruned),
		cmocka_unit_test(it_survives_any_failed_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
