#!/bin/sh
# Which folder may include what (docs/architecture.md): every include between quotes is rooted, and
# only reaches a layer that its folder may know.
#
#   layers.sh             the tree that it is run in; nothing to say when all is well
set -eu

bad=0
complain() {
	echo "$1" >&2
	bad=1
}

# The extended regular expression that an include of this folder has to match.
allowed() {
	case $1 in
	base) echo 'base/[a-z0-9_]+\.h' ;;
	bpf) echo 'bpf/[a-z0-9_]+\.h' ;;
	config) echo '(base|config)/[a-z0-9_]+\.h' ;;
	symbolizer) echo '(base|symbolizer)/[a-z0-9_]+\.h' ;;
	exporter) echo '((base|exporter)/[a-z0-9_]+|config/config|exporter/[a-z0-9_]+\.pb-c)\.h' ;;
	agent) echo '((base|config|agent)/[a-z0-9_]+|bpf/abi|symbolizer/msg|exporter/msg|bpf/[a-z0-9_]+\.skel)\.h' ;;
	esac
}

for folder in base bpf config symbolizer exporter agent; do
	rule=$(allowed "$folder")
	for file in "$folder"/*.[ch]; do
		[ -e "$file" ] || continue
		wrong=$(sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"\([^"]*\)".*/\1/p' "$file" |
			grep -Evx "$rule" || true)
		for include in $wrong; do
			complain "$file: may not include \"$include\" (layers)"
		done
	done
done

# Events and answers are handed to the pipeline: nothing that it is made of can fetch them itself.
# What it is made of: all that pipeline.h and pipeline.c reach through their includes. reader.h is the
# contract with another process; reader.c is that process and no part of the pipeline.
todo=agent/pipeline.h
seen=
while [ -n "$todo" ]; do
	next=
	for header in $todo; do
		case " $seen " in *" $header "*) continue ;; esac
		seen="$seen $header"
		source=${header%.h}.c
		[ "$header" = agent/reader.h ] && source=
		for file in "$header" $source; do
			[ -e "$file" ] || continue
			for include in $(sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"\(agent\/[^"]*\)".*/\1/p' "$file"); do
				case $include in
				agent/sampler.h | agent/sideband.h | agent/symclient.h | agent/expclient.h | agent/readerclient.h)
					complain "$file: is below the pipeline and may not include \"$include\" (layers)"
					;;
				*) next="$next $include" ;;
				esac
			done
		done
	done
	todo=$next
done
[ -e agent/pipeline.h ] || complain "agent/pipeline.h is gone: its rule in layers.sh checks nothing"

exit $bad
