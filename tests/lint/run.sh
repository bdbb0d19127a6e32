#!/bin/sh
# Everything that can be said of the source without running it; `make lint` builds first.
#
#   run.sh [BUILD [BIN]]  build/release and bin when not given
set -u

cd "$(dirname "$0")/../.." || exit 1
out=${1:-build/release}
bin=${2:-bin}
bad=0

step() {
	name=$1
	shift
	if "$@"; then
		printf '  %-8s %s\n' OK "$name"
	else
		printf '  %-8s %s\n' FAILED "$name" >&2
		bad=1
	fi
}

step layers tests/lint/layers.sh
step prefixes tests/lint/prefixes.sh "$out"
step links tests/lint/links.sh "$out" "$bin"
step sizes tests/lint/sizes.sh
step paths tests/lint/paths.sh
step clang tests/lint/clang.sh "$out"
step cppcheck tests/lint/cppcheck.sh "$out"
exit $bad
