#!/bin/sh
# No path of somebody's machine in what is published. /proc/PID/root/... is no such path: only those
# that begin with the name count.
set -eu

if git ls-files -z --cached --others --exclude-standard |
	xargs -0 grep -nIE '(^|[^[:alnum:]_.%}*)-])/(work|root|farm)/' /dev/null >&2; then
	echo "paths of a machine (paths)" >&2
	exit 1
fi
