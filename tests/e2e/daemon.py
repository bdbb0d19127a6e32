"""daemon - what the tests of `flamed --config FILE` share: start it, ask it, stop it, hold it to its laws.

Each daemon has a runtime directory, ports and a log of its own, and short windows. stop() checks what
holds for every run: status 0 within 5 s of the signal, no growth of the log in health, and the two
laws of conservation by its own last words.
"""

import atexit
import contextlib
import functools
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.parse

import harness
from harness import scratch_file, wait_for

START_LINES_MAX = 20
STOP_SECONDS = 5
WINDOW_S = 2
#: What is in no window by right, or by order.
NOT_LOST = ("filtered", "thinned")


def free_port():
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def endpoint(url, **settings):
    return {"url": url, **settings}


@functools.cache
def programs():
    """A directory for programs: one that is not for temporary files, so that they have names."""
    path = tempfile.mkdtemp(prefix="flamed-e2e-", dir="/var/lib")
    os.chmod(path, 0o755)
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def program(name, alias=None):
    """A workload under a name that no other process of this host has: (path, service_name)."""
    service = f"{alias or name}-{os.getpid()}"
    path = os.path.join(programs(), service)
    if not os.path.exists(path):
        shutil.copy(harness.workload(name), path)
    return path, service


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout=10):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def ask(connection, path, headers=None, method="GET"):
    """(status, headers, body)"""
    with contextlib.closing(connection):
        connection.request(method, path, headers=headers or {})
        reply = connection.getresponse()
        return reply.status, reply.headers, reply.read()


def fetch(port, path, headers=None, method="GET", timeout=30):
    return ask(http.client.HTTPConnection("127.0.0.1", port, timeout=timeout), path, headers, method)


class Metrics:
    """One reading of /metrics: {name: {frozenset of (label, value): number}}"""

    LINE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? ([-+.\deE]+|NaN)$")

    def __init__(self, text):
        self.text, self.values = text, {}
        for line in text.splitlines():
            if line and not line.startswith("#"):
                match = self.LINE.match(line)
                assert match, f"not a metric: {line!r}"
                labels = frozenset(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match[2] or ""))
                family = self.values.setdefault(match[1], {})
                assert labels not in family, f"twice there: {line!r}"
                family[labels] = float(match[3])

    def get(self, name, **labels):
        """The sum over what has these labels; 0 where there is none."""
        want = set(labels.items())
        return sum(n for has, n in self.values.get(name, {}).items() if want <= has)

    def by(self, name, label, **labels):
        """{value of the label: sum}"""
        result = {}
        want = set(labels.items())
        for has, n in self.values.get(name, {}).items():
            if want <= has:
                key = dict(has).get(label)
                result[key] = result.get(key, 0) + n
        return result

    def dropped(self):
        return self.by("flamed_samples_dropped_total", "reason")

    def sink(self, name):
        return self.by("flamed_sink_samples_total", "result", endpoint=name)


class Daemon:
    """A running `flamed --config FILE`; settings are merged over those of a quiet test daemon."""

    def __init__(self, settings=None, ready=True, wrap=(), flamed=None, runtime=None, window_s=WINDOW_S,
                 env=None, config_dir=None, **popen):  # fmt: skip
        self.metrics_port = free_port()
        self.page_port = free_port()
        self.runtime = runtime or scratch_file(".run")
        base = {
            "window": f"{window_s}s",
            "runtime_directory": self.runtime,
            "metrics": {"listen": f"127.0.0.1:{self.metrics_port}"},
            "page": {"listen": "off"},
        }
        self.settings = {**base, **(settings or {})}
        self.config = os.path.join(config_dir, "test.yaml") if config_dir else scratch_file(".yaml")
        self.write_config()
        self.stderr_path, self.stdout_path = scratch_file(".err"), scratch_file(".out")
        argv = [*wrap, flamed or harness.FLAMED, "--config", self.config]
        self.begun = time.monotonic()
        with open(self.stdout_path, "wb") as out, open(self.stderr_path, "wb") as err:
            self.process = harness.start(
                argv, stdout=out, stderr=err, stdin=subprocess.DEVNULL,
                env={**os.environ, **(env or {})}, **popen,
            )  # fmt: skip
        self.pid = self.process.pid
        if ready:
            self.wait_ready()

    @staticmethod
    def page(port):
        return {"listen": f"127.0.0.1:{port}"}

    def write_config(self, **changes):
        self.settings.update(changes)
        with open(self.config, "w", encoding="utf-8") as f:
            json.dump(self.settings, f, indent=1)  # JSON is YAML
        os.chmod(self.config, 0o644)

    # ---- what it says ----

    def stderr(self):
        with open(self.stderr_path, "rb") as f:
            return f.read().decode(errors="backslashreplace")

    def lines(self, pattern=""):
        return [line for line in self.stderr().splitlines() if re.search(pattern, line)]

    def wait_line(self, pattern, seconds=30):
        return wait_for(lambda: self.lines(pattern), f"a line /{pattern}/; it said:\n{self.stderr()[-3000:]}",
                        seconds)[0]  # fmt: skip

    def ended(self):
        return self.process.poll() is not None

    def wait_ready(self, seconds=30):
        def up():
            if self.ended():
                raise AssertionError(f"the daemon ended with {self.process.returncode}: {self.stderr()}")
            if not self.lines("profiling every process"):
                return False  # it learns which processes there are
            with contextlib.suppress(OSError, http.client.HTTPException):
                return fetch(self.metrics_port, "/readyz")[0] == 200
            return False

        wait_for(up, f"the daemon to be ready; it said:\n{self.stderr()[-3000:]}", seconds)

    # ---- asking it ----

    def metrics(self):
        status, _, body = fetch(self.metrics_port, "/metrics")
        assert status == 200, status
        return Metrics(body.decode())

    def wait_metric(self, condition, what, seconds=30):
        """Until condition(metrics) is true; returns that reading."""

        def look():
            if self.ended():
                raise AssertionError(f"the daemon ended with {self.process.returncode}: {self.stderr()}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                m = self.metrics()
                if condition(m):
                    return m
            time.sleep(0.1)
            return None

        return wait_for(look, f"{what}; it said:\n{self.stderr()[-3000:]}", seconds)

    def windows(self):
        return self.wait_metric(lambda m: True, "metrics").get("flamed_windows_total")

    def wait_windows(self, n, seconds=60):
        """Until n more windows have ended."""
        target = self.windows() + n
        return self.wait_metric(
            lambda m: m.get("flamed_windows_total") >= target, f"{n} more windows", seconds
        )

    def wait_delivered(self, seconds=30, sink=None):
        """Until all that is counted by now has its fate at each sink, or at this one."""
        n = self.metrics().get("flamed_samples_total")

        def done(m):
            fates = m.by("flamed_sink_samples_total", "endpoint")
            return fates and (fates[sink] if sink else min(fates.values())) >= n

        return self.wait_metric(done, f"{n:.0f} samples to have their fate", seconds)

    @property
    def socket(self):
        return os.path.join(self.runtime, "flamed.sock")

    def api(self, path, **parameters):
        """GET /api/v1/PATH over the control socket."""
        query = "?" + urllib.parse.urlencode(parameters) if parameters else ""
        status, _, body = ask(UnixConnection(self.socket), f"/api/v1/{path}{query}")
        assert status == 200, (path, status, body[:300])
        return json.loads(body)

    @property
    def token(self):
        with open(os.path.join(self.runtime, "page.token"), encoding="ascii") as f:
            return f.read().strip()

    def services(self, seconds=300):
        """{name: service} of the API."""
        return {s["name"]: s for s in self.api("services", **{"from": -seconds})["services"]}

    def processes(self, seconds=300):
        """{pid: process} of the API, each with its service; of a pid's programs the busiest."""
        found = {}
        for name, service in self.services(seconds).items():
            for p in service["processes"]:
                if p["samples"] > found.get(p["pid"], {"samples": 0})["samples"]:
                    found[p["pid"]] = {**p, "service": name}
        return found

    def helpers(self):
        """{role: pid} of its living children."""
        found = {}
        for pid, command in harness.children(self.pid).items():
            for word in command.split()[:2]:
                for role in ("symbolizer", "exporter", "reader"):
                    if word.endswith(role):
                        found[role] = pid
        return found

    # ---- its end ----

    def reload(self, **changes):
        self.write_config(**changes)
        self.process.send_signal(signal.SIGHUP)

    def stop(self, sig=signal.SIGTERM, status=0):
        """Ends it and holds it to what it promises. Returns its last words."""
        begin = time.monotonic()
        self.process.send_signal(sig)
        wait_for(self.ended, f"the end after {sig}; it said:\n{self.stderr()[-3000:]}", 20)
        self.stop_seconds = time.monotonic() - begin
        assert self.process.returncode == status, (self.process.returncode, self.stderr()[-3000:])
        assert self.stop_seconds <= STOP_SECONDS, f"it took {self.stop_seconds:.1f} s to stop"
        self.final = Final(self.stderr())
        self.final.check_laws()
        return self.final


class Final:
    """The last lines (agent/report.h): what was seen and counted, and what became of it at each sink."""

    #: Of the line that are no reasons.
    COUNTS = ("windows", "seen", "samples")

    def __init__(self, stderr):
        ends = re.findall(r"profiling ended (windows=.*)$", stderr, re.M)
        assert len(ends) == 1, f"{len(ends)} last lines: {stderr[-3000:]}"
        after = stderr[stderr.index(ends[0]) :]
        self.text = after.strip()
        counts = harness.parse_counts(re.sub(r"complete=\S+", "", ends[0]))
        self.windows, self.seen, self.samples = (counts.pop(name) for name in self.COUNTS)
        self.drops = counts
        self.sinks, self.handed_on, self.pending = {}, {}, {}
        for name, rest in re.findall(r"delivery endpoint='?([^' ]*)'? (.*)$", after, re.M):
            fates = harness.parse_counts(rest)
            self.handed_on[name] = fates.pop("samples")
            self.pending[name] = fates.pop("pending", 0)
            self.sinks[name] = {fate: n for fate, n in fates.items() if n}

    def check_laws(self):
        assert "unaccounted" not in self.text, self.text
        assert self.seen == self.samples + sum(self.drops.values()), f"the first law: {self.text}"
        for name, fates in self.sinks.items():
            total = sum(fates.values()) + self.pending[name]
            assert total == self.handed_on[name], f"the second law: {self.text}"
            assert self.pending[name] == 0, f"nothing can be pending at the end: {self.text}"
