#!/bin/sh
# Every global name of module.o says where it lives: `module_verb`, or the noun of the module in
# singular or plural (`file_ref` in files.o), or of a struct that the module's header defines
# (`bufr_u8` in buf.o). A file module_part.c is a part of the module.
#
#   prefixes.sh BUILD     the build directory, such as build/release
set -eu

out=$1
bad=0

# Names that belong to another noun, with the reason.
exception() {
	case $1 in
	*/main.o) echo main ;;
	exporter/msg.o) echo export ;; # both msg.o are linked into the agent
	esac
}

nobjects=0
for file in base/*.c config/*.c agent/*.c symbolizer/*.c exporter/*.c; do
	object=${file%.c}.o
	[ -e "$out/$object" ] || continue
	nobjects=$((nobjects + 1))
	nouns=$(exception "$object")
	module=$(basename "$file" .c)
	while :; do
		nouns="$nouns $module ${module%s} ${module}s"
		header=$(dirname "$file")/$module.h
		if [ -e "$header" ]; then
			nouns="$nouns $(sed -n 's/^struct \([a-z0-9_]*\)\( {\|;\).*/\1/p' "$header" | tr '\n' ' ')"
		fi
		case $module in *_*) module=${module%_*} ;; *) break ;; esac
	done
	# shellcheck disable=SC2086
	pattern=$(echo $nouns | tr ' ' '|')
	for name in $(nm -g --defined-only "$out/$object" | awk '{ print $3 }' |
		grep -Ev "^($pattern)(_|\$)" || true); do
		echo "$file: global name $name does not say where it lives (prefixes)" >&2
		bad=1
	done
done
if [ "$nobjects" -eq 0 ]; then
	echo "$out has no objects: build first (prefixes)" >&2
	exit 1
fi
exit $bad
