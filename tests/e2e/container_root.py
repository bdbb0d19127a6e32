"""container_root - a directory with Debian and an installed flamed in it, for podman.

Debian's smallest with the packages of the Containerfile, made once by debootstrap from where this
machine has its own packages, and kept under build/ as an archive.
"""

import contextlib
import hashlib
import os
import re
import shutil
import subprocess

import harness
import packaging_files as files

PODMAN = "/usr/bin/podman"
BUILD = os.path.join(harness.ROOT, "build")


def run(argv, **kwargs):
    done = subprocess.run(argv, capture_output=True, text=True, **kwargs)
    assert done.returncode == 0, f"{argv}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
    return done.stdout


def apt_source():
    """(URI, release) of the packages that this machine was made of."""
    with open("/etc/os-release", encoding="utf-8") as f:
        release = re.search(r"^VERSION_CODENAME=(\w+)$", f.read(), re.M)[1]
    form = "$(REPO_URI) $(CODENAME) $(COMPONENT)"
    argv = ["apt-get", "indextargets", "--format", form, "Created-By: Packages"]
    for line in run(argv).splitlines():
        uri, codename, component = line.split()
        if codename == release and component == "main":
            return uri, release
    raise AssertionError("apt has no sources of this release: 'apt-get update'")


def apt_proxy():
    setting = run(["apt-config", "shell", "proxy", "Acquire::http::Proxy"])
    found = re.search(r"proxy='(.+)'", setting)
    return {"http_proxy": found[1]} if found else {}


def archive(more):
    """The root without flamed, as a tar file that belongs to whom build/ belongs to."""
    packages = sorted({*files.container_packages(), *more})
    uri, release = apt_source()
    key = hashlib.sha256(" ".join([release, *packages]).encode()).hexdigest()[:16]
    path = os.path.join(BUILD, f"container-{key}.tar")
    if os.path.exists(path):
        return path
    root = harness.scratch_file(".debootstrap")
    include = "--include=" + ",".join(packages)
    argv = ["/usr/sbin/debootstrap", "--variant=minbase", include, release, root, uri]
    run(argv, env={**os.environ, **apt_proxy()})
    # Neither where the packages came from nor the packages themselves.
    for name in ("etc/apt/sources.list", "var/cache/apt", "var/lib/apt/lists", "var/log"):
        path_in = os.path.join(root, name)
        shutil.rmtree(path_in, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path_in)
    os.makedirs(BUILD, exist_ok=True)
    run(["tar", "-C", root, "--one-file-system", "-cf", path + ".new", "."])
    owner = os.stat(BUILD)
    os.chown(path + ".new", owner.st_uid, owner.st_gid)
    os.rename(path + ".new", path)
    shutil.rmtree(root)
    return path


def make(*more):
    """A root of this test program, as the Containerfile makes it; `more`: packages beyond that."""
    path = harness.scratch_file(".root")
    os.mkdir(path)
    run(["tar", "-C", path, "-xf", archive(more)])
    argv = ["make", "-C", harness.ROOT, "-o", "all", f"BIN={harness.BIN}", f"DESTDIR={path}"]
    run([*argv, "PREFIX=/usr", "install"])
    with open(files.CONTAINERFILE, encoding="utf-8") as f:
        (useradd,) = re.findall(r"^\s*(useradd .*)$", f.read(), re.M)
    run(["chroot", path, "/bin/sh", "-c", useradd])
    return path


def own_uid(root):
    """The uid that flamed leaves root for in there."""
    with open(os.path.join(root, "etc/passwd"), encoding="ascii") as f:
        return int(re.search(r"^flamed:x:(\d+):", f.read(), re.M)[1])


def podman(state):
    """Its arguments up to the command: its state is a directory of the test."""
    where = [f"--root={state}", f"--runroot={state}-run"]
    return [PODMAN, *where, "--runtime=runc", "--cgroup-manager=cgroupfs"]


#: What this kind of machine lets a container have.
ULIMITS = ["--ulimit=nofile=1024:1024", "--ulimit=nproc=1000:1000"]
