#!/bin/sh
# The link line is the proof of who may do what: the agent, which has privileges, has no parser of
# strangers' files and no network; the children have no bpf(2).
#
#   links.sh BUILD BIN    such as build/release bin; programs that are not built are not checked
set -eu

out=$1
bin=$2
bad=0

elf='elf_|elf[0-9]+_|gelf_|elfx_'
dwarf='dwarf_|dwfl_|dwelf_|cplus_demangle|rust_demangle'
network='curl_|getaddrinfo|gethostby'

# objects FOLDER SYMBOLS: no object of the folder refers to them.
objects() {
	for file in "$1"/*.c; do
		object=$out/${file%.c}.o
		[ -e "$object" ] || continue
		for name in $(nm -u "$object" | awk '{ print $2 }' | grep -E "^($2)" || true); do
			echo "$file: refers to $name (links)" >&2
			bad=1
		done
	done
}

# program NAME LIBRARIES: not linked. libbpf brings libelf: only what the program itself asks for
# counts, so NEEDED and not ldd.
program() {
	[ -e "$bin/$1" ] || return 0
	for name in $(readelf -d "$bin/$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -E "^($2)\.so" || true); do
		echo "$bin/$1: is linked to $name (links)" >&2
		bad=1
	done
}

objects agent "$elf|$dwarf|$network|protobuf_c_|yaml_|deflate|inflate"
objects symbolizer "bpf_|btf__|ring_buffer__|perf_buffer__|$network|yaml_|protobuf_c_"
objects exporter "bpf_|btf__|ring_buffer__|perf_buffer__|$elf|$dwarf|yaml_"
objects config "bpf_|$elf|$dwarf|$network|protobuf_c_"
objects base "bpf_|$elf|$dwarf|$network|protobuf_c_|yaml_"

program flamed 'libdw|libelf|libcurl|libprotobuf-c'
program flamed-symbolizer 'libbpf|libcurl|libyaml|libyaml-0|libprotobuf-c'
program flamed-exporter 'libbpf|libdw|libelf|libyaml|libyaml-0'

exit $bad
