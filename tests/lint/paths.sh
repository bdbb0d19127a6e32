#!/bin/sh
# No path of somebody's machine in what is published. /proc/PID/root/... is no such path: only those
# that begin with the name count.
set -eu

if grep -rnIE --exclude=.git --exclude-dir=.git --exclude-dir=build --exclude-dir=bin \
	'(^|[^[:alnum:]_.%}*)-])/(work|root|farm)/' . >&2; then
	echo "paths of a machine (paths)" >&2
	exit 1
fi
