"""Its children killed, a file system that hangs: sampling goes on, and every sample has its fate."""

import contextlib
import os
import random
import signal
import subprocess
import time

import daemon
import harness
from daemon import Daemon, endpoint
from harness import once, start, wait_for, workload
from standin import Standin

ROLES = ("symbolizer", "exporter", "reader")


class KillRun:
    """Programs of known CPU time while a random child dies every half second, and windows are pushed."""

    SECONDS = 14

    def __init__(self):
        seed = random.randrange(1 << 32)
        print(f"        kills with seed {seed}")
        dice = random.Random(seed)
        self.server = Standin()
        d = Daemon({"endpoints": [endpoint(self.server.url, name="main")]}, window_s=1)
        wait_for(lambda: len(d.helpers()) == len(ROLES), "three children")
        self.services, processes = {}, {}
        for name in ("chain_c", "threads4"):
            path, self.services[name] = daemon.program(name)
            processes[name] = start([path, str(self.SECONDS * 0.6)], stdout=subprocess.PIPE, text=True)
        self.kills = dict.fromkeys(ROLES, 0)
        while any(alive(p) for p in processes.values()):
            time.sleep(dice.uniform(0.1, 0.9))
            role = dice.choice(ROLES)
            pid = d.helpers().get(role)
            if pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    self.kills[role] += 1
        self.ran = {name: harness.reap(p) for name, p in processes.items()}
        wait_for(lambda: len(d.helpers()) == len(ROLES), "all children to be there again")
        d.wait_windows(1)
        d.wait_delivered(60)
        self.metrics = d.metrics()
        self.final = d.stop()


def alive(process):
    """Without reaping it."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


@once
def kill_run():
    return KillRun()


def test_children_that_are_killed_are_replaced_and_counted():
    run = kill_run()
    assert sum(run.kills.values()) >= 8, run.kills
    restarts = run.metrics.by("flamed_child_restarts_total", "child")
    for role, n in run.kills.items():
        assert (n > 0) == (restarts.get(role, 0) > 0) and restarts.get(role, 0) <= n, (run.kills, restarts)


test_children_that_are_killed_are_replaced_and_counted.timeout = 150


def test_each_counted_sample_arrives_once_or_is_dropped_with_a_reason():
    run = kill_run()
    assert not run.server.duplicates(), run.server.duplicates()
    counted, received = run.final.samples, run.server.total()
    fates = dict(run.final.sinks["main"])
    delivered = fates.pop("delivered", 0)
    doubt = fates.pop("in_doubt", 0)
    dropped = sum(fates.values())
    assert delivered <= received <= delivered + doubt, (received, run.final.text)
    assert received + dropped <= counted <= received + dropped + doubt, (received, run.final.text)


def test_sampling_goes_on_while_children_die():
    run = kill_run()
    lost = sum(n for reason, n in run.final.drops.items() if reason not in daemon.NOT_LOST)
    assert lost <= 0.005 * run.final.seen, run.final.text
    fates = run.final.sinks["main"]
    missing = sum(n for fate, n in fates.items() if fate != "delivered")
    for name, ran in run.ran.items():
        sampled = sum(p.samples for p in run.server.stored(service_name=run.services[name]))
        expected = ran.cpu_ns / 1e9 * harness.HZ
        assert expected - sampled <= missing + 0.02 * expected + 4 * expected**0.5, (name, expected, sampled, fates)


# ---- children that are stopped ----


def stop_child(d, role):
    pid = wait_for(lambda: d.helpers().get(role), f"the {role}")
    os.kill(pid, signal.SIGSTOP)
    return pid


def test_windows_go_out_while_the_symbolizer_is_stopped():
    server = Standin()
    path, service = daemon.program("chain_c", "unnamed")
    start([path, "1000"])
    d = Daemon({"endpoints": [endpoint(server.url, name="main")]}, window_s=1)

    def named():
        stacks = [names for p in server.stored(service_name=service) for names in p.stacks]
        return sum(any(name == "spin" for name in names) for names in stacks)

    wait_for(named, "profiles")
    stopped = stop_child(d, "symbolizer")
    d.wait_metric(lambda m: m.get("flamed_names_late_total") > 0, "windows without names")
    assert d.helpers()["symbolizer"] == stopped
    n = d.metrics().get("flamed_samples_total")
    d.wait_metric(lambda m: m.sink("main").get("delivered", 0) >= n, "profiles to be delivered meanwhile")
    assert d.helpers().get("symbolizer") == stopped
    d.wait_line("stopped from outside and is replaced child=flamed-symbolizer")
    n = named()
    wait_for(lambda: named() > n, "names to be there again")
    assert not d.metrics().get("flamed_files_quarantined")
    final = d.stop()
    assert server.total() == final.samples, final.text
    stacks = [names for p in server.stored(service_name=service) for names in p.stacks]
    assert any(any("+0x" in name for name in names) for names in stacks), "no frame without a name"


test_windows_go_out_while_the_symbolizer_is_stopped.timeout = 90


def test_the_last_window_is_delivered_though_the_symbolizer_is_stopped():
    server = Standin()
    path, service = daemon.program("chain_c", "unnamed-last")
    start([path, "1000"])
    d = Daemon({"endpoints": [endpoint(server.url)]}, window_s=15)
    d.wait_metric(lambda m: m.get("flamed_samples_total") > 100, "samples")
    stop_child(d, "symbolizer")
    final = d.stop()
    assert server.stored(service_name=service)
    assert server.total() == final.samples, final.text


def test_a_reader_that_is_stopped_costs_nothing_that_is_known():
    server = Standin()
    path, service = daemon.program("chain_c", "reader-stopped")
    d = Daemon({"endpoints": [endpoint(server.url)]}, window_s=1)
    stop_child(d, "reader")
    ran = harness.run_each({0: [path, "3"]})[0]
    d.wait_line("stopped from outside and is replaced child=flamed-reader")
    d.wait_windows(1)
    d.wait_delivered()
    final = d.stop()
    assert server.total() == final.samples, final.text
    harness.check_cpu("chain_c", sum(p.cpu_ns for p in server.stored(service_name=service)), ran)


def test_an_exporter_that_is_stopped_is_replaced_and_nothing_is_counted_twice():
    server = Standin()
    path, _ = daemon.program("chain_c", "exporter-stopped")
    start([path, "1000"])
    d = Daemon({"endpoints": [endpoint(server.url, name="main")]}, window_s=5)
    d.wait_windows(1)
    stop_child(d, "exporter")
    d.wait_line("stopped from outside and is replaced child=flamed-exporter", 60)
    d.wait_windows(1)
    d.wait_delivered(60)
    final = d.stop()
    fates = final.sinks["main"]
    assert not server.duplicates()
    assert fates["delivered"] <= server.total() <= fates["delivered"] + fates.get("in_doubt", 0), final.text
    assert sum(fates.values()) == final.samples, final.text


test_an_exporter_that_is_stopped_is_replaced_and_nothing_is_counted_twice.timeout = 180


def test_a_child_that_is_killed_is_told_with_what_to_look_for():
    d = Daemon()
    os.kill(wait_for(lambda: d.helpers().get("reader"), "the reader"), signal.SIGKILL)
    line = d.wait_line("child ended child=flamed-reader signal=9")
    assert "OOM killer" in line, line
    wait_for(lambda: d.helpers().get("reader"), "another reader")
    d.stop()


# ---- a file system that stops answering ----


class Fuse:
    """A program that runs from a file system whose server has stopped."""

    def __init__(self):
        nsenter = harness.need_program("/usr/bin/nsenter")
        where = os.path.join(daemon.programs(), "fuse")
        os.mkdir(where)
        self.holder = start([workload("fuse_server"), where, workload("chain_c")], stdout=subprocess.PIPE,
                            text=True)  # fmt: skip
        line = self.holder.stdout.readline()
        if not line:
            raise harness.Skip("no FUSE here")
        self.server = int(line.split()[1])
        path = os.path.join(where, "file")
        self.program = start([nsenter, f"--mount=/proc/{self.server}/ns/mnt", "--", path, "1000"])
        wait_for(lambda: self.cpu_ticks() > 10, "the program to be at work")
        os.kill(self.server, signal.SIGSTOP)

    def cpu_ticks(self):
        with open(f"/proc/{self.program.pid}/stat", encoding="ascii") as f:
            name, _, rest = f.read().rpartition(")")
        fields = rest.split()
        return int(fields[11]) if name.endswith("(file") else 0

    def end(self):
        os.kill(self.server, signal.SIGKILL)


@once
def fuse_run():
    """The hanging program is there first, then the daemon; another program is there all the time."""
    fuse = Fuse()
    try:
        server = Standin()
        path, service = daemon.program("chain_cpp")
        d = Daemon({"endpoints": [endpoint(server.url)]}, window_s=1)
        ran = harness.run_each({"chain_cpp": [path, "4"]})["chain_cpp"]
        begin = time.monotonic()
        status = d.api("status")
        answered = time.monotonic() - begin
        d.wait_windows(1)
        wait_for(lambda: server.stored(service_name="file"), "the hanging program's samples")
        final = d.stop()
    finally:
        fuse.end()
    return server, service, ran, status, answered, final, d


def test_others_are_complete_while_a_file_system_hangs():
    server, service, ran, _, _, final, _ = fuse_run()
    assert server.total() == final.samples, final.text
    profiles = server.stored(service_name=service)
    harness.check_cpu("chain_cpp", sum(p.cpu_ns for p in profiles), ran)
    stacks = [(names, values["samples"]) for p in profiles for names, values in p.stacks.items()]
    bad = sum(n for names, n in stacks if names[0].startswith("["))
    assert bad <= 0.02 * sum(n for _, n in stacks), [s for s in stacks if s[0][0].startswith("[")][:5]


def test_the_daemon_answers_and_stops_while_a_file_system_hangs():
    _, _, _, status, answered, _, d = fuse_run()
    assert status["processes"] and answered < 1, answered
    assert d.stop_seconds < daemon.STOP_SECONDS, d.stop_seconds
