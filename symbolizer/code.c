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

bool code_is_sigreturn(struct bytes at)
{
	static const uint8_t trampoline[CODE_SIGRETURN_LEN] = { 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05 };

	return at.len >= sizeof(trampoline) && memcmp(at.p, trampoline, sizeof(trampoline)) == 0;
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
