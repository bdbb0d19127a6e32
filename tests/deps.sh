#!/bin/sh
# Installs the named Debian packages that are missing; does nothing, and needs no rights, when all are there.
set -eu
missing=
for package in "$@"; do
	status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
	[ "$status" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

complain() {
	echo "deps: $1; missing:$missing" >&2
	exit 1
}
command -v apt-get >/dev/null || complain "this is not Debian: install what these packages are called here, then 'make'"
as_root=
if [ "$(id -u)" != 0 ]; then
	command -v sudo >/dev/null || complain "installing needs root, and there is no sudo"
	as_root=sudo
fi
# On a machine that has just started, unattended upgrades may hold the lock for some minutes.
apt_get() {
	$as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=600 -o Dpkg::Use-Pty=0 "$@"
}
echo "deps: installing$missing"
apt_get update || echo "deps: apt-get update failed, trying with the lists at hand" >&2
# shellcheck disable=SC2086
apt_get install -y --no-install-recommends $missing || complain "apt-get cannot install them, see above"
