#!/bin/sh
# Installs the named Debian packages that are missing; does nothing, and needs no rights, when all are there.
set -eu
missing=
for package in "$@"; do
	status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
	[ "$status" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
echo "installing:$missing"
as_root=
if [ "$(id -u)" != 0 ]; then
	command -v sudo >/dev/null 2>&1 || { echo "flamed: run as root, or install:$missing" >&2; exit 1; }
	as_root=sudo
fi
install() {
	# shellcheck disable=SC2086
	$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing
}
$as_root apt-get update -q || echo "deps: apt-get update failed, trying with the lists at hand" >&2
install
