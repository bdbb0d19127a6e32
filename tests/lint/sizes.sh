#!/bin/sh
# A file past 800 lines is a sign that two rooms share a wall. bpf/vmlinux.h is a list, no code.
set -eu

bad=0
for file in $(git ls-files --cached --others --exclude-standard -- '*.c' '*.h' '*.cc'); do
	[ -e "$file" ] && [ "$file" != bpf/vmlinux.h ] || continue
	nlines=$(wc -l <"$file")
	if [ "$nlines" -gt 800 ]; then
		echo "$file: $nlines lines, over 800 (sizes)" >&2
		bad=1
	fi
done
exit $bad
