#!/bin/sh
# The other compiler's warnings, over every C file, none of them compiled.
#
#   clang.sh BUILD        where the generated headers are
set -eu

out=$1
arch=$(uname -m)
warnings='-Wall -Wextra -Wconversion -Wshadow -Wmissing-prototypes -Wno-missing-field-initializers -Werror'

# Texts that the makefiles define for single files (-DNAME='"..."').
defines=$(sed -n "s/-D\([A-Z_]*\)='\"[^\"]*\"'/\n=\1\n/gp" Makefile tests/tests.mk | sed -n 's/^=\(.*\)/-D\1="lint"/p' | sort -u)

list() {
	for file in base/*.c config/*.c agent/*.c symbolizer/*.c exporter/*.c tests/unit/*.c tests/fuzz/*.c tests/bench/*.c; do
		[ -e "$file" ] || continue
		case $file in
		*_x86_64.c) [ "$arch" = x86_64 ] || continue ;;
		*_arm64.c) [ "$arch" = aarch64 ] || continue ;;
		esac
		echo "$file"
	done
}

# shellcheck disable=SC2086
list | xargs -P "$(nproc)" -n 8 /usr/bin/clang -fsyntax-only -std=gnu17 -O1 -I. -isystem "$out/gen" \
	-D_GNU_SOURCE $defines $warnings
