#!/usr/bin/python3
"""real_pyroscope - flamed against a real Pyroscope server: both protocols, read back and compared.

    PYROSCOPE=/path/to/pyroscope real_pyroscope.py [SECONDS]

Starts the server on loopback, lets flamed push windows to two of its tenants, one by Push and one by
/ingest, and into a directory; then asks the server for each service's sums and compares. Prints the
table that docs/pyroscope.md quotes. Exit status 77 where there is no server to run.
"""

import collections
import glob
import http.client
import json
import os
import subprocess
import sys
import time

sys.dont_write_bytecode = True

import daemon  # noqa: E402
import harness  # noqa: E402
import pprof  # noqa: E402
from daemon import Daemon, endpoint  # noqa: E402
from harness import wait_for  # noqa: E402

CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
SAMPLES = "process_cpu:samples:count:cpu:nanoseconds"
TENANTS = ("push", "ingest")


class Server:
    """A single binary with v2 storage and default limits; tenants are told apart."""

    def __init__(self, binary):
        self.port, directory = daemon.free_port(), harness.scratch_file(".pyroscope")
        here, grpc = "127.0.0.1", daemon.free_port()
        raft = f"{here}:{daemon.free_port()}"
        flags = {
            "target": "all", "architecture.storage": "v2", "usage-stats.enabled": "false",
            "tracing.enabled": "false", "self-profiling.disable-push": "true",
            "auth.multitenancy-enabled": "true",
            "server.http-listen-address": here, "server.http-listen-port": self.port,
            "server.grpc-listen-address": here, "server.grpc-listen-port": grpc,
            "query-backend.address": f"{here}:{grpc}", "metastore.address": f"{here}:{grpc}",
            "metastore.raft.bind-address": raft,
            "metastore.raft.advertise-address": raft, "metastore.raft.server-id": raft,
            "memberlist.bind-addr": here, "memberlist.advertise-addr": here,
            "memberlist.bind-port": daemon.free_port(),
            "distributor.ring.instance-addr": here, "overrides-exporter.ring.instance-addr": here,
            "query-frontend.instance-addr": here, "segment-writer.lifecycler.addr": here,
            "segment-writer.min-ready-duration": "0", "metastore.min-ready-duration": "0",
            "storage.backend": "filesystem", "storage.filesystem.dir": f"{directory}/shared",
            "metastore.data-dir": f"{directory}/meta", "metastore.raft.dir": f"{directory}/raft",
            "metastore.raft.snapshots-dir": f"{directory}/raft",
        }  # fmt: skip
        os.mkdir(directory)
        self.log = harness.scratch_file(".log")
        with open(self.log, "wb") as log:
            self.process = harness.start(
                [binary, *(f"-{name}={value}" for name, value in flags.items())],
                stdout=log, stderr=subprocess.STDOUT, cwd=directory,
            )  # fmt: skip
        wait_for(self.ready, f"the server to be ready: {self.log}", 120)

    def ready(self):
        assert self.process.poll() is None, open(self.log, errors="replace").read()[-3000:]
        try:
            return daemon.fetch(self.port, "/ready")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def ask(self, tenant, method, **what):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Content-Type": "application/json", "X-Scope-OrgID": tenant}
        connection.request("POST", f"/querier.v1.QuerierService/{method}", json.dumps(what), headers)
        reply = connection.getresponse()
        body = reply.read()
        connection.close()
        assert reply.status == 200, (method, what, reply.status, body[:500])
        return json.loads(body)

    def total(self, tenant, type_id, selector, start_ms, end_ms):
        profile = self.ask(tenant, "SelectMergeProfile", profileTypeID=type_id, labelSelector=selector,
                           start=start_ms, end=end_ms)  # fmt: skip
        return sum(int(s["value"][0]) for s in profile.get("sample", []))

    def series(self, tenant, start_ms, end_ms):
        reply = self.ask(tenant, "Series", matchers=[], labelNames=[], start=start_ms, end=end_ms)
        return [{x["name"]: x["value"] for x in s["labels"]} for s in reply.get("labelsSet", [])]


def sums_of(directory):
    """{service: Counter of samples and cpu} of what flamed wrote as files."""
    sums = collections.defaultdict(collections.Counter)
    for path in glob.glob(os.path.join(directory, "*.pb.gz")):
        for service, values in pprof.load(path).by_label("service_name").items():
            sums[service].update(values)
    return sums


def run_flamed(server, seconds):
    """(directory of files, last words)"""
    directory = harness.scratch_file(".profiles")
    url = f"http://127.0.0.1:{server.port}"
    d = Daemon({
        "endpoints": [endpoint(url, name=name, protocol=name, tenant_id=name) for name in TENANTS],
        "output": {"directory": directory},
        "labels": {"hostname": "testhost", "static": {"region": "eu-1"}},
    }, window_s=5)  # fmt: skip
    load = {"duty": ["50", str(seconds / 2)], "chain_c": [str(seconds / 3)], "chain_cpp": [str(seconds / 4)]}
    commands = {name: [daemon.program(name)[0], *args] for name, args in load.items()}
    harness.run_each(commands, at_a_time=len(commands))
    d.wait_windows(1)
    return directory, d.stop()


def compare(server, directory, start_ms):
    """Prints the table; returns how many rows differ."""
    end_ms = round(time.time() * 1000) + 1000
    wrong = 0
    print("| tenant | service | samples sent | samples read back | CPU s sent | CPU s read back |")
    print("|---|---|---:|---:|---:|---:|")
    total = collections.Counter()
    for tenant in TENANTS:
        for service, sent in sorted(sums_of(directory).items()):
            selector = '{service_name="%s"}' % service
            got = {
                "samples": server.total(tenant, SAMPLES, selector, start_ms, end_ms),
                "cpu": server.total(tenant, CPU, selector, start_ms, end_ms),
            }
            total.update({(tenant, "sent"): sent["samples"], (tenant, "got"): got["samples"]})
            wrong += got != dict(sent)
            print(f"| {tenant} | {service.replace(f'-{os.getpid()}', '')} | {sent['samples']} | {got['samples']} "
                  f"| {sent['cpu'] / 1e9:.3f} | {got['cpu'] / 1e9:.3f} |")  # fmt: skip
    for tenant in TENANTS:
        print(f"| {tenant} | all | {total[tenant, 'sent']} | {total[tenant, 'got']} | | |")
        labels = server.series(tenant, start_ms, end_ms)
        print(f"{tenant}: {len(labels)} series, labels {sorted({k for x in labels for k in x})}", file=sys.stderr)
    return wrong


def main():
    binary = os.environ.get("PYROSCOPE", "")
    if not os.access(binary, os.X_OK) or os.path.isdir(binary):
        print("real_pyroscope: skipped: PYROSCOPE names no program")
        return 77
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20
    try:
        server = Server(binary)
        start_ms = round(time.time() * 1000) - 10000
        directory, final = run_flamed(server, seconds)
        print(final.text, file=sys.stderr)
        time.sleep(5)  # the server's own delay between taking and showing
        return 1 if compare(server, directory, start_ms) else 0
    finally:
        harness.stop_all()


if __name__ == "__main__":
    sys.exit(main())
