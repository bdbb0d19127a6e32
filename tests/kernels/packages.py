#!/usr/bin/python3
"""packages - Debian's kernels, downloaded and unpacked below a directory, never installed.

    packages.py DIRECTORY NAME...

DIRECTORY/NAME then holds vmlinuz, version and overlay.ko, or, when the mirror does not have the kernel,
a file `missing` that says why. What is there is kept: delete the directory for newer kernels. Mirrors are the
system's own, with the suite's name replaced. Needs no rights.
"""

import argparse
import collections
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
UPDATE_S, DOWNLOAD_S = 180, 600

#: The suite that has the kernel, and the package that depends on its newest build.
Kernel = collections.namedtuple("Kernel", "suite package")
KERNELS = {
    "5.10": Kernel("bullseye", "linux-image-cloud-amd64"),
    "6.1": Kernel("bookworm", "linux-image-cloud-amd64"),
    "6.12": Kernel("trixie", "linux-image-cloud-amd64"),
    "6.1-rt": Kernel("bookworm", "linux-image-rt-amd64"),
    "6.12-rt": Kernel("trixie", "linux-image-rt-amd64"),
}


class Missing(Exception):
    """The mirror does not have it, or there is no mirror."""


def running_suite():
    with open("/etc/os-release", encoding="utf-8") as f:
        match = re.search(r"^VERSION_CODENAME=(\w+)$", f.read(), re.M)
    if not match:
        raise Missing("this system does not name its suite in /etc/os-release")
    return match[1]


def sources(suite):
    """Lines of a sources.list for another suite."""
    here = running_suite()
    form = "$(REPO_URI) $(RELEASE)"
    targets = subprocess.run(
        ["apt-get", "indextargets", "--format", form, "Created-By: Packages", "Component: main"],
        stdout=subprocess.PIPE, text=True, timeout=UPDATE_S,
    ).stdout  # fmt: skip
    of = {release: uri for uri, release in (line.split() for line in targets.splitlines())}
    lines = []
    for release, uri in of.items():
        if release in (here, f"{here}-security"):
            lines.append(f"deb [signed-by={KEYRING}] {uri} {release.replace(here, suite)} main\n")
    if here not in of:
        raise Missing(f"the system's own sources of packages have no suite {here}")
    return lines


class Apt:
    """apt with lists of its own."""

    def __init__(self, directory, suite):
        os.makedirs(os.path.join(directory, "lists/partial"), exist_ok=True)
        self.directory = directory
        list_path = os.path.join(directory, "sources.list")
        with open(list_path, "w", encoding="utf-8") as f:
            f.writelines(sources(suite))
        settings = {
            "Dir::Etc::sourcelist": list_path,
            "Dir::Etc::sourceparts": "/nonexistent",
            "Dir::State::lists": os.path.join(directory, "lists"),
            "Dir::State::status": "/dev/null",
            "Dir::Cache": directory,
            "APT::Sandbox::User": "root",
            "Acquire::Languages": "none",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
            "Acquire::Retries": "2",
        }
        self.options = [x for k, v in settings.items() for x in ("-o", f"{k}={v}")]

    def run(self, program, *args, seconds):
        return subprocess.run(
            [program, *self.options, "-q", *args], cwd=self.directory, text=True, timeout=seconds,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip

    def download(self, package):
        """The path of the newest build that `package` depends on."""
        # One of the two archives may be gone; the other may still have it.
        said = self.run("apt-get", "update", seconds=UPDATE_S).stdout
        shown = self.run("apt-cache", "show", package, seconds=UPDATE_S).stdout
        image = re.search(r"^Depends: (linux-image-\S+) ", shown, re.M)
        if not image:
            why = re.search(r"^[EW]: (.*)$", said, re.M)
            raise Missing(f"no {package}" + (f": {why[1]}" if why else ""))
        done = self.run("apt-get", "download", image[1], seconds=DOWNLOAD_S)
        found = [x for x in os.listdir(self.directory) if x.startswith(f"{image[1]}_")]
        if done.returncode or not found:
            raise Missing(f"{image[1]} cannot be downloaded: {done.stdout[-300:].strip()}")
        return os.path.join(self.directory, found[0])


def unpack(package, directory):
    """The kernel and the module that is not built in; the rest of a hundred megabytes is not kept."""
    process = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE)
    with process, tarfile.open(fileobj=process.stdout, mode="r|") as tar:
        for member in tar:
            name = os.path.basename(member.name)
            if name.startswith("vmlinuz-"):
                with open(os.path.join(directory, "version"), "w", encoding="ascii") as f:
                    f.write(name.removeprefix("vmlinuz-"))
                name = "vmlinuz"
            elif not name.startswith("overlay.ko"):
                continue
            data = tar.extractfile(member).read()
            if name.endswith(".xz"):
                data, name = lzma.decompress(data), name.removesuffix(".xz")
            with open(os.path.join(directory, name), "wb") as f:
                f.write(data)
    absent = {"vmlinuz", "version", "overlay.ko"} - set(os.listdir(directory))
    if absent:
        raise Missing(f"{os.path.basename(package)} has no {sorted(absent)}")


def fetch(directory, name):
    """One kernel, unless it is there. Returns None, or why there is none."""
    final, work = os.path.join(directory, name), os.path.join(directory, name + ".partial")
    if os.path.exists(os.path.join(final, "vmlinuz")):
        return None
    for path in (final, work):
        shutil.rmtree(path, ignore_errors=True)
    os.makedirs(work)
    why = None
    kernel = KERNELS[name]
    apt = os.path.join(work, "apt")
    try:
        unpack(Apt(apt, kernel.suite).download(kernel.package), work)
    except (Missing, OSError, subprocess.SubprocessError, tarfile.TarError) as error:
        why = f"{kernel.suite}: {error}"
        with open(os.path.join(work, "missing"), "w", encoding="utf-8") as f:
            f.write(why)
    shutil.rmtree(apt, ignore_errors=True)
    os.rename(work, final)
    return why


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    parser.add_argument("directory")
    parser.add_argument("names", nargs="+", choices=sorted(KERNELS), metavar="NAME")
    args = parser.parse_args()
    for name in args.names:
        why = fetch(os.path.abspath(args.directory), name)
        if why:
            print(f"kernel {name} is missing: {why}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
