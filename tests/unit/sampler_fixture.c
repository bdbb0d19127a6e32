#include "tests/unit/sampler_fixture.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"

static void nap(uint64_t ns)
{
	struct timespec ts = { .tv_sec = (time_t)(ns / NSEC_PER_SEC),
			       .tv_nsec = (long)(ns % NSEC_PER_SEC) };

	nanosleep(&ts, NULL);
}

struct target target_start(target_fn *fn)
{
	struct target t;

	t.facts = mmap(NULL, sizeof(*t.facts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(t.facts != MAP_FAILED);
	t.pid = fork();
	assert_true(t.pid >= 0);
	if (!t.pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		t.facts->tid = getpid();
		fn(t.facts);
		_exit(1);
	}
	for (int i = 0; !t.facts->ready; i++) {
		assert_true(i < 1000 && waitpid(t.pid, NULL, WNOHANG) == 0);
		nap(5 * NSEC_PER_MSEC);
	}
	return t;
}

void target_stop(struct target *t)
{
	kill(t->pid, SIGKILL);
	waitpid(t->pid, NULL, 0);
	munmap(t->facts, sizeof(*t->facts));
}

TARGET void target_ready(struct facts *f)
{
	f->ready = 1;
}

TARGET _Noreturn void target_spin(struct facts *f)
{
	volatile uint64_t n = 0;

	target_ready(f);
	for (;;)
		n++;
}

uint64_t target_start_stack(const struct target *t)
{
	char path[64], text[2048], *at;
	FILE *f;
	size_t n;

	snprintf(path, sizeof(path), "/proc/%d/stat", t->pid);
	f = fopen(path, "re");
	assert_non_null(f);
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = '\0';
	at = strrchr(text, ')');
	assert_non_null(at);
	for (int field = 2; field < 28; field++) {
		at = strchr(at + 1, ' ');
		assert_non_null(at);
	}
	return strtoull(at, NULL, 10);
}

int harvest_add(void *arg, const struct abi_record *r, size_t len)
{
	struct harvest *h = arg;

	record_check(r, len);
	h->nseen += r->part == 0;
	if (h->pid && (pid_t)r->pid != h->pid)
		return 0;
	if (!(h->nrecords & (h->nrecords - 1))) { /* full at each power of two */
		h->records = reallocarray(h->records, h->nrecords ? h->nrecords * 2 : 1,
					  sizeof(*h->records));
		assert_non_null(h->records);
	}
	h->records[h->nrecords] = malloc(len);
	assert_non_null(h->records[h->nrecords]);
	memcpy(h->records[h->nrecords++], r, len);
	return 0;
}

void harvest_reset(struct harvest *h)
{
	for (size_t i = 0; i < h->nrecords; i++)
		free(h->records[i]);
	free(h->records);
	*h = (struct harvest){};
}

void harvest_run(struct harvest *h, const struct sampler_conf *conf, uint64_t duration_ns)
{
	CLEANUP(sampler_freep) struct sampler *s = NULL;
	const char *why = "";
	uint64_t end;
	int err;

	err = sampler_new(&s, conf, harvest_add, h, &why);
	if (err)
		fail_msg("%s (%s)", why, strerror(-err));
	assert_int_equal(sampler_start(s, &why), 0);
	for (end = clock_mono_ns() + duration_ns; clock_mono_ns() < end;) {
		nap(20 * NSEC_PER_MSEC);
		assert_int_equal(sampler_dispatch(s), 0);
	}
	sampler_stop(s);
	assert_int_equal(sampler_dispatch(s), 0);
}

const void *section_data(const struct abi_section *s)
{
	return s + 1;
}

static const struct abi_section *section_at(const struct abi_record *r, size_t off)
{
	return (const void *)((const uint8_t *)r + off);
}

const struct abi_section *record_find(const struct abi_record *r, uint32_t kind, uint32_t id)
{
	size_t off = sizeof(*r);

	for (uint32_t i = 0; i < r->nsections; i++) {
		const struct abi_section *s = section_at(r, off);

		if (s->kind == kind && s->id == id)
			return s;
		off += sizeof(*s) + ((s->len + 7u) & ~7u);
	}
	return NULL;
}

bool section_covers(const struct abi_section *s, uint64_t address, uint64_t len)
{
	return s && address >= s->address && address + len <= s->address + s->len;
}

bool section_has_hole_at(const struct abi_section *s, uint64_t address)
{
	return s->holes >> (address / 4096 - s->address / 4096) & 1;
}

uint64_t record_reg(const struct abi_record *r, uint32_t reg)
{
	const struct abi_section *s = record_find(r, ABI_SEC_REGS, 0);

	assert_non_null(s);
	assert_true(reg < s->len / 8);
	return ((const uint64_t *)section_data(s))[reg];
}

void record_check(const struct abi_record *r, size_t len)
{
	size_t off = sizeof(*r);

	assert_int_equal(r->size, len);
	assert_int_equal(len % 8, 0);
	assert_in_range(len, sizeof(*r), ABI_RECORD_MAX);
	assert_int_equal(r->kind, ABI_KIND_CPU);
	assert_true(r->part < ABI_PARTS_MAX);
	assert_true(r->seq > 0 && r->pid > 0 && r->tid > 0 && r->period_ns > 0);
	assert_true(r->time_ns <= clock_mono_ns());
	for (uint32_t i = 0; i < r->nsections; i++) {
		const struct abi_section *s = section_at(r, off);

		assert_true(off + sizeof(*s) <= len);
		assert_in_range(s->kind, ABI_SEC_REGS, ABI_SEC_USTACK);
		off += sizeof(*s) + ((s->len + 7u) & ~7u);
		assert_true(s->len > 0 && off <= len);
		if (s->kind == ABI_SEC_REGS)
			assert_int_equal(s->len, ABI_X86_NREGS * 8);
		if (s->kind == ABI_SEC_STACK) {
			uint64_t last = (s->address + s->len - 1) / 4096 - s->address / 4096;

			assert_true(s->len <= ABI_WINDOW_MAX && s->address && s->address % 8 == 0);
			if (s->id != ABI_WIN_LEARNED)
				assert_int_equal(s->holes >> last, 0); /* the last page is there */
		} else {
			assert_int_equal(s->holes, 0);
		}
	}
	assert_int_equal(off, len);
}
