"""cgroups - real control groups, containers and short programs for the tests of labels."""

import contextlib
import csv
import json
import os
import re
import subprocess

import harness

VECTORS = os.path.join(harness.ROOT, "tests/unit/cgroup_vectors.tsv")


def hierarchies():
    """{controller, "name=x", or "" for v2: where it is mounted}"""
    found = {}
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        for line in f:
            left, _, right = line.partition(" - ")
            where, (kind, _, options) = left.split()[4], right.split()[:3]
            if kind == "cgroup2":
                found[""] = where
            elif kind == "cgroup":
                for option in options.split(","):
                    found[option] = where
    return found


def vectors():
    """[(hierarchy, path, {label: value}, note)] of the lines whose path can be a control group."""
    with open(VECTORS, encoding="utf-8") as f:
        rows = list(csv.DictReader((x for x in f if not x.startswith("#")), delimiter="\t",
                                   quoting=csv.QUOTE_NONE))  # fmt: skip
    result = []
    for row in rows:
        parts = row["line"].split(":", 2)
        path = parts[-1].rstrip()
        if len(parts) == 3 and re.fullmatch(r"(/(?!\.\.?(/|$))[^/]{1,255})+", path):
            labels = {name: row[name] or "" for name in ("container_id", "pod_uid", "unit") if name in row}
            result.append((parts[1], path, labels, row["note"]))
    return result


class Groups:
    """Control groups made by a test; all gone, with what runs in them, when it is over."""

    #: Hierarchies that a process may enter without further settings stand in for those that ask for some.
    INSTEAD = {"cpuset": "pids", "perf_event": "memory", "cpu": "pids"}

    def __init__(self):
        self.mounts = hierarchies()
        self.made, self.processes = [], []

    def where(self, controllers):
        name = self.INSTEAD.get(controllers, controllers)
        return self.mounts.get(name)

    def make(self, controllers, path):
        """The directory of a new group, or None where this host has no such hierarchy."""
        base = self.where(controllers)
        if base is None:
            return None
        for part in path.strip("/").split("/"):
            base = os.path.join(base, part)
            with contextlib.suppress(FileExistsError):
                os.mkdir(base)
                self.made.append(base)
        return base

    def start(self, directory, argv):
        """A process that is in the group from its first instruction."""

        def enter():
            with open(os.path.join(directory, "cgroup.procs"), "w", encoding="ascii") as f:
                f.write("0")

        self.processes.append(harness.start(argv, preexec_fn=enter, stdout=subprocess.DEVNULL))
        return self.processes[-1]

    def close(self):
        for process in self.processes:
            process.kill()
            process.wait()
        for directory in reversed(self.made):
            harness.wait_for(lambda d=directory: remove(d), f"{directory} to be empty")


def remove(directory):
    try:
        os.rmdir(directory)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


@contextlib.contextmanager
def groups():
    made = Groups()
    try:
        yield made
    finally:
        made.close()


# ---- containers ----


def root_of_container(program, name):
    """A root directory with one static program, /bin/NAME."""
    root = harness.scratch_file(".root")
    for directory in ("bin", "proc", "sys", "dev", "tmp", "etc", "run"):
        os.makedirs(os.path.join(root, directory))
    path = os.path.join(root, "bin", name)
    with open(harness.workload(program), "rb") as source, open(path, "wb") as copy:
        copy.write(source.read())
    os.chmod(path, 0o755)
    return root


PODMAN = ["/usr/bin/podman"]
PODMAN_RUN = ["--runtime", "runc", "--cgroup-manager=cgroupfs"]
CONTAINER = ["--network=none", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000"]


def podman(*args, seconds=60):
    harness.need_program(PODMAN[0])
    done = subprocess.run([*PODMAN, *PODMAN_RUN, *args], capture_output=True, text=True, timeout=seconds,
                          stdin=subprocess.DEVNULL)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def podman_start(root, *argv):
    """The id of a container that has begun."""
    return podman("run", "--detach", "--rm", *CONTAINER, "--rootfs", root, *argv)


def podman_pid(container):
    return int(podman("inspect", "--format", "{{.State.Pid}}", container))


def runc_start(root, container, cgroups_path, argv):
    """A container by runc alone; its pid."""
    runc = harness.need_program("/usr/sbin/runc")
    bundle = harness.scratch_file(".bundle")
    os.mkdir(bundle)
    subprocess.run([runc, "spec", "--bundle", bundle], check=True)
    with open(os.path.join(bundle, "config.json"), encoding="utf-8") as f:
        spec = json.load(f)
    spec["process"].update(terminal=False, args=argv, rlimits=[])
    spec["root"] = {"path": root, "readonly": True}
    spec["linux"]["cgroupsPath"] = cgroups_path
    with open(os.path.join(bundle, "config.json"), "w", encoding="utf-8") as f:
        json.dump(spec, f)
    subprocess.run([runc, "run", "--detach", "--bundle", bundle, container], check=True, timeout=60,
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)  # fmt: skip
    state = subprocess.run([runc, "state", container], check=True, capture_output=True, text=True)
    return json.loads(state.stdout)["pid"]


def runc_delete(container):
    subprocess.run(["/usr/sbin/runc", "delete", "--force", container], capture_output=True, timeout=30)
