"""daemons - what the daemon costs while it runs: `flamed --config FILE` as the end-to-end tests start it.

Two of its kinds are compared: one that pushes to the stand-in server of the tests, and one that keeps
its windows for the page. The server's own time is not counted. A figure that the daemon says of
itself on /metrics has to agree with what /proc says, or there is no figure.
"""

import contextlib
import json
import os
import re
import sys
import time
import urllib.request

from measure import cpu_ns, held_kib, memory, name, read, running, tree

HERE = os.path.dirname(os.path.abspath(__file__))
E2E = os.path.join(os.path.dirname(HERE), "e2e")
os.environ.setdefault("E2E_BIN", os.environ.get("BENCH_BIN", os.path.join(HERE, "../../bin")))
sys.path.append(E2E)
import daemon  # noqa: E402
import harness  # noqa: E402

STATUS_S = 7  # agent/report.c looks at its processes every 5 s


def bpf_cost(pid):
    """(ns, runs) of the BPF programs that a process holds."""
    programs = {}
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fdinfo"):
            info = read(f"/proc/{pid}/fdinfo/{fd}")
            n = {k: int(v) for k, v in re.findall(r"^(prog_id|run_time_ns|run_cnt):\s+(\d+)", info, re.M)}
            if "run_cnt" in n:
                programs[n["prog_id"]] = n["run_time_ns"], n["run_cnt"]
    return tuple(sum(v) for v in zip(*programs.values()))


class Server:
    """The stand-in server, a process of its own."""

    def __init__(self):
        self.port = daemon.free_port()
        argv = [sys.executable, os.path.join(E2E, "standin.py"), "--quiet", "--port", str(self.port)]
        self.argv, self.url = argv, f"http://127.0.0.1:{self.port}"

    def summary(self):
        with urllib.request.urlopen(f"{self.url}/standin/summary", timeout=10) as reply:
            return json.load(reply)


class Look:
    """What is known of a daemon at one moment."""

    def __init__(self, d):
        self.at_ns = time.monotonic_ns()
        self.cpu = {name(pid): cpu_ns([pid]) for pid in tree(d.pid)}
        self.bpf = bpf_cost(d.pid)
        m = d.metrics()
        self.seen, self.samples = m.get("flamed_samples_seen_total"), m.get("flamed_samples_total")
        self.filtered = m.dropped().get("filtered", 0)


def agree(what, said, least, most):
    if not least <= said <= most:
        raise RuntimeError(f"{what}: /metrics says {said:.0f}, /proc {least:.0f} to {most:.0f}")


def check_cpu(d, before_ns):
    """CPU time since the start; before_ns is what /proc said STATUS_S ago."""
    said = d.metrics().get("flamed_cpu_nanoseconds_total")
    tick_ns = 1e9 / os.sysconf("SC_CLK_TCK")
    now_ns = sum(cpu_ns([pid]) for pid in tree(d.pid))
    agree("ns of CPU", said, before_ns - 8 * tick_ns, now_ns + 8 * tick_ns)


def check_memory(d, processes):
    """They look at different moments, and count pages that two processes share differently."""
    said = d.metrics().get("flamed_memory_bytes") / 1024
    resident = sum(p["anon"] + p["shmem"] for p in processes.values())
    agree("KiB of memory", said, 0.8 * resident - 1024, 1.2 * resident + 1024)
    said = d.metrics().get("flamed_bpf_maps_bytes") / 1024
    rings = sum(p["bpf"] + p["perf"] for p in processes.values())
    agree("KiB of BPF maps and rings", said, 0.8 * rings - 1024, 1.2 * rings + 1024)


def measure(d, seconds):
    first = Look(d)
    time.sleep(seconds - STATUS_S)
    before_ns = sum(Look(d).cpu.values())
    time.sleep(STATUS_S)
    last = Look(d)
    processes = memory(tree(d.pid))
    check_cpu(d, before_ns)
    check_memory(d, processes)
    lasted = last.at_ns - first.at_ns
    if last.cpu.keys() != first.cpu.keys():
        raise RuntimeError(f"a process came or went: {first.cpu.keys()} {last.cpu.keys()}")
    if last.samples == first.samples:
        raise RuntimeError("nothing was sampled")
    used = {role: last.cpu[role] - first.cpu[role] for role in last.cpu}
    samples = last.samples - first.samples
    ticks = last.bpf[1] - first.bpf[1]
    return {
        "percent": 100 * sum(used.values()) / lasted,
        "roles": {role: 100 * ns / lasted for role, ns in used.items()},
        "us": sum(used.values()) / 1000 / samples,
        "bpf_us": (last.bpf[0] - first.bpf[0]) / 1000 / ticks,
        "mib": held_kib(processes) / 1024,
        "seen": last.seen - first.seen,
        "filtered": last.filtered - first.filtered,
    }


def run(settings, window_s, windows):
    """Measures a daemon over so many windows, from the end of its first whole one."""
    with harness.bpf_stats():
        d = daemon.Daemon(settings, window_s=window_s)
        try:
            d.wait_windows(2, 3 * window_s + 10)
            result = measure(d, windows * window_s)
            result["end"] = d.stop().text
        finally:
            harness.stop_all()
    return result


def pushing(window_s, windows):
    server = Server()
    with running(server.argv):
        harness.wait_for(lambda: answers(server), "the stand-in server")
        result = run({"endpoints": [{"name": "standin", "url": server.url}]}, window_s, windows)
        stored = server.summary()
    if not stored["samples"] or "delivered" not in result["end"]:
        raise RuntimeError(f"nothing was delivered: {stored} {result['end']}")
    return result


def answers(server):
    with contextlib.suppress(OSError):
        return bool(server.summary())
    return False


def keeping(window_s, windows):
    """For the page, and nobody looks at it."""
    return run({"page": daemon.Daemon.page(daemon.free_port())}, window_s, windows)


def skipping(services, window_s, windows):
    """All of these services are excluded."""
    result = run({"processes": {"exclude": services}}, window_s, windows)
    if result["filtered"] < 0.5 * result["seen"]:
        raise RuntimeError(f"{result['filtered']} of {result['seen']} samples were filtered")
    return result
