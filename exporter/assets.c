#include "exporter/assets.h"

#include <string.h>

#include "exporter/assets_list.h" /* ASSETS(X) of X(identifier, file), made by the Makefile */

/* .incbin is the assembler's; its paths are those of the build's root. */
#define X(id, file)                                    \
	__asm__(".pushsection .rodata\n"               \
		"asset_" #id ":\n"                     \
		".incbin \"exporter/page/" file "\"\n" \
		"asset_" #id "_end:\n"                 \
		".byte 0\n"                            \
		".popsection\n");                      \
	extern const char asset_##id[], asset_##id##_end[];
#pragma GCC visibility push(hidden) /* they are this object's own labels */
ASSETS(X)
#pragma GCC visibility pop
#undef X

static const char *type_of(const char *name)
{
	static const char *const types[][2] = {
		{ ".html", "text/html; charset=utf-8" },
		{ ".css", "text/css; charset=utf-8" },
		{ ".js", "text/javascript; charset=utf-8" },
		{ ".svg", "image/svg+xml" },
	};
	const char *dot = strrchr(name, '.');

	for (size_t i = 0; dot && i < ARRAY_SIZE(types); i++) {
		if (!strcmp(dot, types[i][0]))
			return types[i][1];
	}
	return "application/octet-stream";
}

const struct asset *asset_find(const char *name)
{
	static struct asset assets[] = {
#define X(id, file) { .name = file, .data = asset_##id },
		ASSETS(X)
#undef X
	};
	static const char *const ends[] = {
#define X(id, file) asset_##id##_end,
		ASSETS(X)
#undef X
	};

	if (!*name)
		name = "index.html";
	for (size_t i = 0; i < ARRAY_SIZE(assets); i++) {
		if (strcmp(name, assets[i].name))
			continue;
		assets[i].len = (size_t)(ends[i] - assets[i].data);
		assets[i].type = type_of(name);
		return &assets[i];
	}
	return NULL;
}
