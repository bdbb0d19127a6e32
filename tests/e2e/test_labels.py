"""Labels of real processes in real control groups and containers."""

import os
import re
import shutil
import tempfile
import time

import cgroups
import daemon
import harness
from daemon import Daemon, endpoint
from harness import once, start, wait_for
from standin import Standin

HEX64 = "b4510afb170d8204b5ce6dc535770a39fbc66e1a65a8af2a22193b6d4104b49c"


def need_root():
    if os.getuid():
        raise harness.Skip("needs root")


def labels_of(pid, *args):
    """{name: value} by `flamed labels PID`, and its text."""
    done = harness.flamed("labels", pid, *args)
    assert done.returncode == 0, done.stderr
    lines = dict(re.findall(r"^([\w ]+): (.*?)(?:  \(.*\))?$", done.stdout, re.M))
    return lines, done.stdout


# ---- control groups ----


class VectorRun:
    """A process in each group that this host can have; what the API and `flamed labels` say of it."""

    def __init__(self):
        need_root()
        none = {"container_id": "", "pod_uid": ""}
        more = [
            ("name=systemd", r"/system.slice/system-my\x2dapp.slice/my-app@blue\x2dgreen.service", none,
             "service=my-app"),
            ("name=systemd", "/user.slice/user-1000.slice/user@1000.service/app.slice/editor.service", none,
             "service=user/editor"),
            ("name=systemd", "/system.slice/run-u1234.service", none, "service=duty"),
            ("", f"/docker/{HEX64[:-1]}", none, "63 digits"),
            ("", f"/docker/{HEX64}0", none, "65 digits"),
        ]  # fmt: skip
        self.rows, self.skipped = [], []
        with cgroups.groups() as groups:
            running = []
            for i, row in enumerate(cgroups.vectors() + more):
                # The API lists at most 50 processes of a service.
                path, service = daemon.program("duty", f"duty{i // 25}")
                directory = groups.make(row[0], row[1])
                if directory:
                    running.append((row, service, groups.start(directory, [path, "1.5", "1000"])))
                else:
                    self.skipped.append(row[-1])
            self.d = Daemon({"page": Daemon.page(daemon.free_port())})
            pids = {p.pid for _, _, p in running}
            wait_for(lambda: self.seen() >= pids, "all processes to be sampled", 80)
            shown = self.d.processes()
            for row, service, process in running:
                self.rows.append((row, service, shown[process.pid], labels_of(process.pid)[0]))
            self.final = self.d.stop()

    def seen(self):
        time.sleep(0.5)
        return {pid for pid, p in self.d.processes().items() if p["labels"]}


@once
def vector_run():
    return VectorRun()


def test_container_and_pod_are_known_for_each_kind_of_group():
    run = vector_run()
    assert len(run.rows) >= 12, f"only {len(run.rows)} groups could be made: {run.skipped}"
    wrong = []
    for (controllers, path, want, note), _, shown, told in run.rows:
        for what, labels in (("API", shown["labels"]), ("flamed labels", told)):
            got = {name: labels.get(name, "") for name in want}
            if got != want:
                wrong.append(f"{note}: {controllers}:{path}: {what} says {got}, not {want}")
    assert not wrong, "\n".join(wrong)


def test_services_are_named_by_their_unit_and_transient_ones_are_none():
    named = 0
    for (_, path, _, note), service, shown, told in vector_run().rows:
        match = re.fullmatch(r"service=(\S+)", note)
        if match:
            want = service if match[1] == "duty" else match[1]
            assert shown["service"] == told["service_name"] == want, (path, shown, told)
            named += 1
    assert named == 3, named


def test_ids_are_no_series_labels_unless_asked_for():
    need_root()
    server, including = Standin(), Standin()
    path, service = daemon.program("chain_c")
    with cgroups.groups() as groups:
        directory = groups.make("", f"/docker/{HEX64}")
        if directory is None:
            raise harness.Skip("no cgroup v2")
        groups.start(directory, [path, "1000"])
        plain = Daemon({"endpoints": [endpoint(server.url)]}, window_s=1)
        wait_for(lambda: server.stored(service_name=service), "the service to arrive")
        plain.stop()
        d = Daemon({"endpoints": [endpoint(including.url)], "labels": {"include": ["container_id"]}},
                   window_s=1)  # fmt: skip
        wait_for(lambda: including.stored(service_name=service, container_id=HEX64), "the label to arrive")
        d.stop()
    for p in server.profiles:
        assert set(p.labels) == {"service_name", "hostname"}, p.labels


# ---- flamed labels ----


def test_flamed_labels_tells_what_and_from_where():
    path, service = daemon.program("chain_c")
    process = start([path, "1000"])
    wait_for(lambda: os.readlink(f"/proc/{process.pid}/exe") == path, "the exec")
    labels, text = labels_of(process.pid)
    assert labels["service_name"] == service, text
    assert path in text and labels["sampled"] == "yes", text
    for line in text.splitlines():
        assert re.match(r"[a-zA-Z_][\w ]*: ", line), f"not `name: value`: {line!r}"
    config = harness.scratch_file(".yaml")
    with open(config, "w", encoding="ascii") as f:
        f.write(f"processes: {{exclude: [{service}]}}\nlabels: {{static: {{stage: prod}}}}\n")
    labels, text = labels_of(process.pid, "--config", config)
    assert labels["sampled"] == "no", text


def test_flamed_labels_of_a_kernel_thread_and_of_nobody():
    labels, text = labels_of(2)
    assert labels["service_name"] == "kernel", text
    done = harness.flamed("labels", "4194303")
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done
    assert "4194303" in done.stderr
    assert harness.flamed("labels", "x").returncode not in (0, None)


# ---- containers ----


def test_containers_of_runc_and_podman_are_known():
    need_root()
    harness.need_program("/usr/sbin/runc")
    harness.need_program("/usr/bin/podman")
    name = f"spin{os.getpid()}"
    root = cgroups.root_of_container("chain_static", name)
    runc_id = f"{os.getpid():064x}"
    container = cgroups.podman_start(root, f"/bin/{name}", "1000")
    try:
        pids = {cgroups.podman_pid(container): container}
        pids[cgroups.runc_start(root, f"flamed-e2e-{os.getpid()}", f"/docker/{runc_id}",
                                [f"/bin/{name}", "1000"])] = runc_id  # fmt: skip
        d = Daemon({"page": Daemon.page(daemon.free_port())})
        wait_for(lambda: set(pids) <= set(d.processes()), "both containers to be sampled")
        shown = d.processes()
        for pid, want in pids.items():
            assert shown[pid]["labels"].get("container_id") == want, shown[pid]
            assert labels_of(pid)[0]["container_id"] == want
        query = d.api("query", **{"from": -60, "service": name})
        assert "spin" in query["names"], query["names"][:50]
        d.stop()
    finally:
        cgroups.podman("rm", "--force", container)
        cgroups.runc_delete(f"flamed-e2e-{os.getpid()}")


def test_containers_that_live_half_a_second_are_known():
    need_root()
    harness.need_program("/usr/sbin/runc")
    name = f"brief{os.getpid()}"
    root = cgroups.root_of_container("chain_static", name)
    d = Daemon({"page": Daemon.page(daemon.free_port())})
    ids = {}
    for i in range(6):
        container = f"flamed-e2e-{os.getpid()}-{i}"
        ids[f"{os.getpid():060x}{i:04x}"] = container
        cgroups.runc_start(root, container, f"/docker/{list(ids)[-1]}", [f"/bin/{name}", "0.4"])
        time.sleep(0.5)
    d.wait_windows(2)
    known = {p["labels"].get("container_id") for p in d.processes().values() if p["service"] == name}
    for container in ids.values():
        cgroups.runc_delete(container)
    assert known == set(ids), f"known {known}, of {set(ids)}"
    d.stop()


# ---- many ----


KINDS = (
    lambda i: f"/user.slice/user-1000.slice/session-{9000 + i}.scope",
    lambda i: f"/system.slice/run-u{9000 + i}.service",
    lambda i: f"/system.slice/run-r{os.urandom(16).hex()}.scope",
    lambda i: f"/user.slice/user-1000.slice/user@1000.service/app.slice/run-u{9000 + i}.service",
)


def spawn_many(groups, n):
    """n short processes in session scopes and transient units, every fourth from a program under /tmp."""
    path, service = daemon.program("chain_c", "short")
    running = []
    with tempfile.TemporaryDirectory(prefix="flamed-e2e-many-", dir="/tmp") as tmp:
        for i in range(n):
            program = path
            if i % 4 == 3:
                program = shutil.copy(path, os.path.join(tmp, f"build-{os.urandom(6).hex()}"))
            directory = groups.make("name=systemd", KINDS[i // 4 % 4](i))
            running.append(groups.start(directory, [program, "0.04"]))
            if len(running) >= 8 or i == n - 1:
                for process in running:
                    process.wait()
                running.clear()
    return service


def test_hundreds_of_scopes_units_and_temporary_programs_are_few_series():
    """160 here; exporter/labels has 5 000 in its unit test."""
    need_root()
    if "name=systemd" not in cgroups.hierarchies():
        raise harness.Skip("no hierarchy name=systemd")
    server = Standin()
    d = Daemon({"endpoints": [endpoint(server.url)]}, window_s=1)
    with cgroups.groups() as groups:
        service = spawn_many(groups, 160)
    d.wait_windows(2)
    final = d.stop()
    names = server.services()
    assert {service, "other"} <= names, names
    made = {n for n in names if re.search(r"session|run-[ur]|build-|user@", n)}
    assert not made, f"series for what lives a moment: {made}"
    short = {p.series for p in server.profiles if p.service in (service, "other")}
    assert len(short) == 2, short
    assert server.total() == final.samples, final.text


def test_a_user_with_ever_new_programs_makes_a_bounded_number_of_series():
    server = Standin()
    d = Daemon({"endpoints": [endpoint(server.url)]}, window_s=5)
    path, service = daemon.program("chain_c")
    commands = {}
    for i in range(340):
        new = os.path.join(daemon.programs(), f"new{i}-{os.getpid()}")
        os.link(path, new)
        commands[new] = [new, "0.05"]
    harness.run_each(commands, at_a_time=8)
    d.wait_windows(2)
    late = start([path, "1000"])  # what comes when there is no place is counted all the same
    d.wait_line("service_name=other")
    metrics = d.wait_windows(2)
    final = d.stop()
    assert late.poll() is None
    names = {n for n in server.services() if re.fullmatch(rf"new\d+-{os.getpid()}", n)}
    assert 150 < len(names) <= 256, len(names)
    assert service not in server.services() and "other" in server.services()
    assert metrics.get("flamed_service_names", **{"from": "executable"}) == 256, metrics.text
    assert metrics.get("flamed_service_names_other_samples_total") > 0, metrics.text
    assert len(d.lines("service_name=other")) <= 2, d.lines()
    assert server.total() == final.samples, final.text
