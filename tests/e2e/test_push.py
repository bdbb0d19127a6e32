"""A minute of windows, pushed in every way: each arrives once, sample for sample.

One daemon feeds a server with Push, one with /ingest, one that has no Push (`auto` must find out), and
a directory, while programs of known CPU time run.
"""

import collections
import glob
import os
import subprocess

import daemon
import harness
import pprof
from daemon import Daemon, endpoint
from harness import once
from standin import Standin

SECONDS = 60
USER, PASSWORD = "4711", "planted-password-Zq8"
TOKEN = "planted-token-Xv3"
HEADER = "planted-header-Rw5"
SECRETS = (PASSWORD, TOKEN, HEADER)


def secret_file(text):
    path = harness.scratch_file(".secret")
    with open(path, "w", encoding="ascii", opener=lambda p, f: os.open(p, f, 0o600)) as f:
        f.write(text + "\n")
    return path


class Run:
    """What ran, and what arrived."""

    def __init__(self):
        self.servers = {
            "push": Standin(users={USER: PASSWORD}, limit=True),
            "ingest": Standin(bearer=TOKEN, limit=True),
            "auto": Standin(push=False, prefix="/v1/profiles/pyroscope", tenants=True),
        }
        url = {name: server.url for name, server in self.servers.items()}
        self.directory = harness.scratch_file(".profiles")
        auth = {"username": USER, "password_file": secret_file(PASSWORD)}
        self.daemon = Daemon({
            "labels": {"hostname": "testhost", "static": {"region": "eu-1", "team": "a b"}},
            "endpoints": [
                endpoint(url["push"], name="push", protocol="push", basic_auth=auth),
                endpoint(url["ingest"] + "/", name="ingest", protocol="ingest", bearer_token=TOKEN,
                         headers={"X-Planted": HEADER}),
                endpoint(url["auto"], name="auto", tenant_id="team-1"),
            ],
            "output": {"directory": self.directory},
            "page": Daemon.page(daemon.free_port()),
        })  # fmt: skip
        self.start_lines = self.daemon.lines()
        self.run_programs()
        self.daemon.wait_windows(1)
        self.shown = self.look_around()
        self.status = self.daemon.api("status")
        self.final = self.daemon.stop()
        for server in self.servers.values():
            server.stop()

    def run_programs(self):
        what = {"duty": ("60", SECONDS * 0.55), "chain_c": (str(SECONDS * 0.3),), "threads4": ("12",),
                "chain_pie": ("6",)}  # fmt: skip
        self.services, commands = {}, {}
        for name, args in what.items():
            path, service = daemon.program(name)
            self.services[name] = service
            commands[name] = [path, *map(str, args)]
        self.ran = harness.run_each(commands, at_a_time=len(commands))

    def look_around(self):
        """Everything that it shows to anybody, by name."""
        d = self.daemon
        page = d.settings["page"]["listen"].rpartition(":")[2]
        shown = {
            "/metrics": d.metrics().text,
            "page": str(daemon.fetch(int(page), f"/{d.token}/")),
            "page without token": str(daemon.fetch(int(page), "/")),
            "status": harness.flamed("status", "--socket", d.socket).stdout,
            "--print-config": str(harness.flamed("--config", d.config, "--print-config")),
            "--check-config": str(harness.flamed("--config", d.config, "--check-config")),
        }
        for path in ("status", "services", "query"):
            shown[f"API {path}"] = str(d.api(path))
        return shown


@once
def run():
    return Run()


def per_window(server):
    """{window's start: {series: how often}}"""
    windows = collections.defaultdict(collections.Counter)
    for p in server.profiles:
        windows[p.time_ns][p.series] += 1
    return windows


def check_arrived_once(name):
    r = run()
    server = r.servers[name]
    assert not server.duplicates(), server.duplicates()
    assert server.total() == r.final.samples, (
        f"{server.total()} samples arrived of {r.final.samples}; answered {server.statuses()}"
    )
    twice = {
        (start, series): n
        for start, all_series in per_window(server).items()
        for series, n in all_series.items()
        if n > 1 and len({p.meta["id"] for p in server.profiles}) < len(server.profiles)
    }
    assert not twice, f"a series came twice in a window: {twice}"


def test_every_window_arrives_once_sample_for_sample_by_push():
    check_arrived_once("push")


test_every_window_arrives_once_sample_for_sample_by_push.timeout = 150


def test_every_window_arrives_once_sample_for_sample_by_ingest():
    check_arrived_once("ingest")


def test_every_window_arrives_once_where_there_is_no_push():
    check_arrived_once("auto")
    server = run().servers["auto"]
    assert {p.meta["transport"] for p in server.profiles} == {"ingest"}
    asked = [q for q in server.requests if "PusherService" in q.path]
    assert 1 <= len(asked) <= 20, f"{len(asked)} requests went to what is not there"


def test_every_window_arrives_once_in_the_directory():
    files = glob.glob(os.path.join(run().directory, "*.pb.gz"))
    profiles = [pprof.load(path) for path in files]
    assert sum(p.total("samples") for p in profiles) == run().final.samples
    left = set(os.listdir(run().directory)) - {os.path.basename(f) for f in files}
    assert not left, f"half-written files are left: {left}"
    for path in files[:: 1 + len(files) // 50]:
        violations = pprof.validate(path)
        assert not violations, (path, violations[:5])


def test_windows_meet_and_do_not_overlap():
    for name, server in run().servers.items():
        spans = sorted({(p.time_ns, p.duration_ns) for p in server.profiles})
        assert len(spans) >= SECONDS / daemon.WINDOW_S * 0.8, (name, len(spans))
        for (start, length), (later, _) in zip(spans, spans[1:]):
            assert abs(start + length - later) < 5e6, (
                f"{name}: a window ends at {start + length}, the next one begins at {later}"
            )
        assert all(length <= daemon.WINDOW_S * 1.3e9 for _, length in spans), spans


def test_seen_by_bpf_is_delivered_and_dropped():
    final = run().final  # both laws are checked by stop()
    assert final.samples > 2000, final.text
    lost = sum(n for reason, n in final.drops.items() if reason not in daemon.NOT_LOST)
    assert lost <= 0.005 * final.seen, final.drops


def test_each_service_has_its_cpu_time():
    r = run()
    for name, server in r.servers.items():
        for program, ran in r.ran.items():
            sampled = sum(p.cpu_ns for p in server.stored(service_name=r.services[program]))
            harness.check_cpu(f"{name}: {program}", sampled, ran)


def test_stacks_arrive_whole():
    r = run()
    for name, server in r.servers.items():
        stacks = collections.Counter()
        for p in server.stored(service_name=r.services["chain_c"]):
            for names, values in p.stacks.items():
                stacks[";".join(names)] += values["samples"]
        whole = sum(n for stack, n in stacks.items() if ";main;a;b;c;spin" in stack)
        assert whole >= 0.97 * stacks.total() > 500, (name, whole, stacks.most_common(5))


def test_series_have_the_labels_of_the_settings_and_no_others():
    r = run()
    for name, server in r.servers.items():
        want = {"service_name", "hostname", "region", "team"}
        want |= set() if name == "push" else {"pyroscope_spy"}
        for p in server.profiles:
            assert set(p.labels) == want, (name, p.labels)
            assert p.labels["hostname"] == "testhost" and p.labels["region"] == "eu-1", p.labels
            assert p.service and "unspecified" not in p.service
        types = {t for p in server.profiles for t in p.type_ids}
        assert "process_cpu:cpu:nanoseconds:cpu:nanoseconds" in types, types


def test_pushed_profiles_keep_the_rules_of_the_format():
    for name, server in run().servers.items():
        broken = collections.Counter()
        for p in server.profiles[:: 1 + len(server.profiles) // 50]:
            broken.update(pprof.validate_raw(p.meta["raw"], pushed=True))
        assert not broken, (name, broken.most_common(5))


def test_requests_are_those_that_the_servers_document():
    servers = run().servers
    for name, server in servers.items():
        for q in server.requests:
            assert q.headers["user-agent"].startswith("flamed/"), q.headers
            assert "expect" not in q.headers and "//" not in q.path, (q.path, q.headers)
    pushed = [q for q in servers["push"].requests if q.status == 200]
    assert all(q.headers["content-type"] == "application/proto" for q in pushed)
    assert all(p.meta["headers"]["x-planted"] == HEADER for p in servers["ingest"].profiles)
    assert all(p.meta["tenant"] == "team-1" for p in servers["auto"].profiles)
    for name, server in servers.items():
        bad = [q.status for q in server.requests if q.status != 200]
        # The probe for Push, and what `auto` sent there before it knew.
        assert len(bad) <= (20 if name == "auto" else 2), (name, server.statuses())


def test_connections_are_kept():
    r = run()
    for name, server in r.servers.items():
        n = len(server.requests)
        assert server.accepted <= 10 + n / 20, f"{name}: {server.accepted} connections, {n} requests"


def test_secrets_appear_nowhere():
    r = run()
    everything = {**r.shown, "log": r.daemon.stderr(), "output": open(r.daemon.stdout_path).read()}
    for secret in SECRETS:
        for where, text in everything.items():
            assert secret not in text, f"{secret} is in {where}: {text[:2000]}"
    assert r.daemon.token not in r.shown["page without token"]
    for where in ("/metrics", "API status", "status"):
        assert "push" in everything[where], f"{where} does not name the endpoint: {everything[where][:1000]}"


def test_the_start_is_told_in_few_lines_and_health_in_none():
    r = run()
    assert 1 <= len(r.start_lines) <= daemon.START_LINES_MAX, r.start_lines
    later = r.daemon.lines()[len(r.start_lines) :]
    assert len(later) <= 6, later


def test_go_tool_pprof_reads_what_is_pushed():
    go = harness.need_program("/usr/bin/go")
    server = run().servers["push"]
    path = harness.scratch_file(".pb")
    biggest = max(server.stored(service_name=run().services["chain_c"]), key=lambda p: p.samples)
    with open(path, "wb") as f:
        f.write(biggest.meta["raw"])
    done = subprocess.run([go, "tool", "pprof", "-top", path], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "HOME": harness.scratch(), "PPROF_TMPDIR": harness.scratch()})  # fmt: skip
    assert done.returncode == 0 and "spin" in done.stdout, (done.stdout, done.stderr)


def test_status_tells_what_each_process_may_do():
    text = run().shown["status"]
    for word in ("agent", "reader", "symbolizer", "exporter", "push", "ingest", "auto", "directory"):
        assert word in text, f"{word} is not in:\n{text}"
    processes = {p["name"]: p for p in run().status["processes"]}
    assert not processes["exporter"]["caps_permitted"] and not processes["symbolizer"]["caps_permitted"]
    assert sorted(processes["agent"]["caps_effective"]) == ["bpf", "perfmon", "syslog"], processes["agent"]
    assert len({p["uid"] for p in processes.values()}) == 1, processes
    assert 0 not in {p["uid"] for p in processes.values()} or os.getuid(), processes
    assert all(p["seccomp"] for n, p in processes.items() if n in ("exporter", "symbolizer")), processes

