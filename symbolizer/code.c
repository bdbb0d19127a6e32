#include "symbolizer/code.h"

#include <string.h>

/*
 * Bytes of `ff /2` with this ModRM and the byte after it; 0 when the ModRM is another operation's.
 * ModRM: mod 2 bits, operation 3 bits, rm 3 bits. rm 4 with memory has a SIB byte.
 */
static size_t indirect_call_len(uint8_t modrm, uint8_t sib)
{
	uint8_t mod = modrm >> 6, rm = modrm & 7;
	size_t len = 2;

	if ((modrm & 0x38) != 0x10)
		return 0;
	if (mod == 3)
		return len;
	if (rm == 4)
		len++;
	if (mod == 1)
		len += 1;
	else if (mod == 2 || (mod == 0 && rm == 5) || (mod == 0 && rm == 4 && (sib & 7) == 5))
		len += 4;
	return len;
}

bool code_ends_with_call(struct bytes before)
{
	const uint8_t *end;

	if (!before.len)
		return false;
	end = before.p + before.len;
	if (before.len >= 5 && end[-5] == 0xe8)
		return true;
	for (size_t len = 2; len <= CODE_CALL_MAX && len <= before.len; len++) {
		const uint8_t *p = end - len;

		if (p[0] == 0xff && indirect_call_len(p[1], len > 2 ? p[2] : 0) == len)
			return true;
	}
	return false;
}

bool code_ends_with_register_jump(struct bytes before)
{
	return before.len >= 2 && before.p[before.len - 2] == 0xff && (before.p[before.len - 1] & 0xf8) == 0xe0;
}

/* One instruction of a table that is not its last: `words` is what it pushes. Its length, 0 for others. */
static size_t plt_step(struct bytes at, uint32_t *words)
{
	static const struct {
		uint8_t op[4];
		uint8_t op_len, len, words;
	} steps[] = {
		{ { 0xf3, 0x0f, 0x1e, 0xfa }, 4, 4, 0 }, /* endbr64 */
		{ { 0x41, 0xbb }, 2, 6, 0 },		 /* mov $index, %r11d */
		{ { 0x41, 0x53 }, 2, 2, 1 },		 /* push %r11 */
		{ { 0x68 }, 1, 5, 1 },			 /* push $index */
		{ { 0xff, 0x35 }, 2, 6, 1 },		 /* push GOT+8(%rip) */
		{ { 0xf2 }, 1, 1, 0 },			 /* bnd, before a jump */
	};

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		if (at.len < steps[i].len || memcmp(at.p, steps[i].op, steps[i].op_len) != 0)
			continue;
		*words += steps[i].words;
		return steps[i].len;
	}
	return 0;
}

static bool ends_with_got_push(struct bytes before)
{
	return before.len >= 6 && before.p[before.len - 6] == 0xff && before.p[before.len - 5] == 0x35;
}

/*
 * Each entry ends with a jump: to the function, with its return address on top; to the first entry, with
 * an index pushed; or, in that one, to the resolver with one word more. So the way to the jump tells.
 */
uint32_t code_plt_cfa(struct bytes before, struct bytes at)
{
	bool has_got = ends_with_got_push(before);
	uint32_t words = 0;
	size_t len;

	while ((len = plt_step(at, &words)) > 0) {
		has_got |= at.p[0] == 0xff;
		at = (struct bytes){ at.p + len, at.len - len };
	}
	if (at.len >= 6 && at.p[0] == 0xff && at.p[1] == 0x25)
		return words <= (has_got ? 2 : 0) ? 8 * ((has_got ? 3 : 1) - words) : 0;
	return at.len >= 5 && at.p[0] == 0xe9 && words <= 1 ? 8 * (2 - words) : 0;
}

bool code_is_clone(struct bytes before, struct bytes at)
{
	static const uint8_t bytes[CODE_CLONE_LEN] = { 0x0f, 0x05, 0x48, 0x85, 0xc0, 0x7c, 0, 0x74, 0x01, 0xc3 };
	static const uint8_t starts[] = { 0, 2, 5, 7, 9 };

	for (size_t i = 0; i < ARRAY_SIZE(starts); i++) {
		uint8_t done = starts[i], got[CODE_CLONE_LEN];

		if (before.len < done || at.len < sizeof(bytes) - done)
			continue;
		if (done > 0)
			memcpy(got, before.p + before.len - done, done);
		memcpy(got + done, at.p, sizeof(bytes) - done);
		got[6] = 0; /* how far the error's code is */
		if (memcmp(got, bytes, sizeof(bytes)) == 0)
			return true;
	}
	return false;
}

bool code_is_sigreturn(struct bytes before, struct bytes at, uint32_t *ret_before)
{
	static const uint8_t trampoline[CODE_SIGRETURN_LEN] = { 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05 };

	for (uint32_t done = 0; done <= CODE_SIGRETURN_CALL; done += CODE_SIGRETURN_CALL) {
		if (before.len < done || at.len < sizeof(trampoline) - done ||
		    memcmp(at.p, trampoline + done, sizeof(trampoline) - done) != 0)
			continue;
		if (done && memcmp(before.p + before.len - done, trampoline, done) != 0)
			continue;
		*ret_before = done;
		return true;
	}
	return false;
}

bool code_ends_with_pop_rbp(struct bytes before)
{
	return before.len > 0 && before.p[before.len - 1] == 0x5d;
}

bool code_is_frame_setup(struct bytes at)
{
	static const uint8_t setup[] = { 0x55, 0x48, 0x89, 0xe5 };

	return at.len >= sizeof(setup) && memcmp(at.p, setup, sizeof(setup)) == 0;
}

size_t code_saves_rbp_at(struct bytes at, int64_t disp)
{
	int32_t d;

	if (at.len >= 5 && memcmp(at.p, "\x48\x89\x6c\x24", 4) == 0 && (int8_t)at.p[4] == disp)
		return 5;
	if (at.len >= 8 && memcmp(at.p, "\x48\x89\xac\x24", 4) == 0) {
		memcpy(&d, at.p + 4, sizeof(d));
		if (d == disp)
			return 8;
	}
	/* A displacement of 0 has no byte. */
	return disp == 0 && at.len >= 4 && memcmp(at.p, "\x48\x89\x2c\x24", 4) == 0 ? 4 : 0;
}
