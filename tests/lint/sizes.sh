#!/bin/sh
# A file past 800 lines is a sign that two rooms share a wall. bpf/vmlinux.h is a list, no code.
set -eu

bad=0
for file in $(find . \( -path ./.git -o -path ./build -o -path ./bpf/vmlinux.h \) -prune -o \
	-name '*.[ch]' -print -o -name '*.cc' -print); do
	nlines=$(wc -l <"$file")
	if [ "$nlines" -gt 800 ]; then
		echo "$file: $nlines lines, over 800 (sizes)" >&2
		bad=1
	fi
done
exit $bad
