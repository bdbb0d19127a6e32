#include "agent/sigframe.h"

#include <cpuid.h>

enum {
	LEAF_XSTATE = 0xd,
	OSXSAVE = 1 << 27, /* leaf 1, ecx */
	LEGACY_BYTES = 512,
	HEADER_BYTES = 64,
	FIRST_EXTENDED = 2,
	TILE_DATA = 18, /* AMX */
	MAGIC_BYTES = 4,
};

static uint64_t enabled_features(void)
{
	uint32_t eax, edx;

	__asm__("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
	return (uint64_t)edx << 32 | eax;
}

static uint32_t bytes_of(uint64_t features)
{
	uint32_t end = LEGACY_BYTES + HEADER_BYTES, size, offset, ecx, edx;

	for (uint32_t i = FIRST_EXTENDED; i < 63; i++)
		if (features >> i & 1 && __get_cpuid_count(LEAF_XSTATE, i, &size, &offset, &ecx, &edx))
			end = MAX(end, offset + size);
	return end + MAGIC_BYTES;
}

void sigframe_xsave_bytes(uint32_t ret[ABI_XSAVE_SIZES])
{
	uint32_t eax, ebx, ecx = 0, edx;
	uint64_t features;

	ret[0] = ret[1] = 0;
	if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & OSXSAVE)) {
		ret[0] = LEGACY_BYTES;
		return;
	}
	features = enabled_features();
	ret[0] = bytes_of(features & ~(1ull << TILE_DATA));
	if (features >> TILE_DATA & 1)
		ret[1] = bytes_of(features);
}
