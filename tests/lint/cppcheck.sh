#!/bin/sh
# cppcheck, without what it gets wrong: it does not know that a cleanup attribute frees (leaks are
# LeakSanitizer's to find), does not follow statement expressions (MIN, MAX), and takes X-macros for errors.
set -eu

cache=$1/cppcheck
mkdir -p "$cache"
cppcheck --quiet -j "$(nproc)" --cppcheck-build-dir="$cache" --std=c11 --language=c --inline-suppr \
	--enable=warning,performance,portability --error-exitcode=1 --template=gcc \
	-I. -D_GNU_SOURCE -D__x86_64__ -D__GNUC__=12 -DFLAMED_BUILD_ID='"lint"' -DFLAMED_VERSION='"lint"' \
	--suppress=memleak --suppress=resourceLeak --suppress=memleakOnRealloc \
	--suppress=missingInclude --suppress=unknownMacro --suppress=unmatchedSuppression \
	--suppress=internalAstError --suppress=duplicateAssignExpression --suppress=signConversion \
	base config agent symbolizer exporter
