"""Servers that are away, slow, wrong or full: what is delivered late, what is dropped, what is said."""

import contextlib
import os
import re
import socket
import subprocess
import time

import daemon
import harness
from daemon import Daemon, endpoint
from harness import start, wait_for, workload
from standin import Fault, Standin


def busy():
    """Something to sample, as long as the test lasts."""
    return start([workload("chain_c"), "1000"])


def check_all_arrived(server, final, at_least_once=False):
    total = server.total() - sum(extra_copies(server))
    assert total == final.samples, f"{total} samples arrived: {server.statuses()}; {final.text}"
    if not at_least_once:
        assert not server.duplicates(), server.duplicates()


def extra_copies(server):
    """Samples of each copy of a profile after its first."""
    seen = set()
    for p in server.profiles:
        key = (p.series, p.time_ns, p.meta["digest"])
        if key in seen:
            yield p.samples
        seen.add(key)


def test_an_endpoint_that_was_away_gets_everything():
    busy()
    server = Standin()
    server.stop()
    d = Daemon({"endpoints": [endpoint(server.url)]}, window_s=1)
    d.wait_line(r"(?i)connect|refused")
    d.wait_windows(4)
    held = d.metrics()
    assert held.get("flamed_sink_samples_pending") > 0, held.text
    assert not sum(held.sink(server.url).values()), held.text
    server.start()
    wait_for(lambda: server.total() > 0, "the first profile to arrive after the outage", 40)
    d.wait_delivered(60)
    check_all_arrived(server, d.stop())
    assert len(d.lines(r"(?i)refused")) <= 2, d.lines()  # the same failure is told once a minute


def test_a_server_in_trouble_gets_everything_when_it_is_well_again():
    busy()
    troubles = {
        "unavailable": Fault.error("unavailable", "no segment writer"),
        "internal": Fault.error("internal", "disk on fire"),
        "limited": Fault.error("resource_exhausted", "push rate limit (4.0 MiB) exceeded while adding 1.0 MiB"),
        "closing": Fault.close(),
        "storing": Fault.close(store=True),
        "gateway": Fault.status(502, b"<html>Bad Gateway</html>", "text/html"),
    }  # fmt: skip
    servers = {name: Standin() for name in troubles}
    for name, server in servers.items():
        server.fault(troubles[name])
    d = Daemon({"endpoints": [endpoint(s.url, name=n) for n, s in servers.items()]}, window_s=1)
    for server in servers.values():
        wait_for(lambda server=server: len(server.requests) >= 4, "some tries")
    d.wait_windows(2)
    for server in servers.values():
        server.heal()
    d.wait_delivered(80)
    final = d.stop()
    for name, server in servers.items():
        check_all_arrived(server, final, at_least_once=name == "storing")
        assert d.lines(name), f"nothing is said of {name}"
    assert d.lines("disk on fire") and d.lines("no segment writer"), d.lines()


def test_an_endpoint_that_hangs_holds_up_nobody_else():
    busy()
    hanging, good = Standin(), Standin()
    hanging.fault(Fault.hang())
    d = Daemon({"endpoints": [endpoint(hanging.url, name="hanging", timeout="2s"),
                              endpoint(good.url, name="good")]}, window_s=1)  # fmt: skip
    d.wait_windows(5)
    d.wait_line("hanging")
    d.wait_metric(lambda m: m.sink("good").get("delivered", 0) > 0, "the good endpoint")
    final = d.stop()
    check_all_arrived(good, final)
    assert hanging.total() == 0
    left = final.sinks["hanging"]
    # What was on its way may have arrived.
    assert left.get("shutdown", 0) > 0, final.text
    assert left["shutdown"] + left.get("in_doubt", 0) == final.samples, final.text


def test_what_no_server_takes_is_dropped_with_a_reason_and_said_once():
    busy()
    reasons = {
        "proxy": (Fault.proxy413(), "413"),
        "moved": (Fault.redirect("https://elsewhere.invalid/"), "elsewhere.invalid"),
        "wrong": (Fault.error("invalid_argument", "profile with labels has a planted fault"), "planted fault"),
    }  # fmt: skip
    servers = {name: Standin() for name in reasons}
    for name, server in servers.items():
        server.fault(reasons[name][0])
    d = Daemon({"endpoints": [endpoint(s.url, name=n) for n, s in servers.items()]}, window_s=1)
    d.wait_windows(4)
    for name, (_, words) in reasons.items():
        d.wait_line(f"{name}.*{words}|{words}.*{name}")
        assert len(d.lines(words)) <= 2, d.lines(words)
    for name in ("proxy", "wrong"):
        d.wait_metric(lambda m, name=name: m.sink(name).get("rejected", 0) > 0, f"{name}: rejected")
    d.stop()


def test_a_silent_name_server_holds_up_nobody():
    """The resolver waits in a thread of its own, which outlives the request that gave it up."""
    if os.getuid():
        raise harness.Skip("needs root")
    busy()
    resolv_conf = harness.scratch_file(".resolv")
    with open(resolv_conf, "w", encoding="ascii") as f:
        f.write("nameserver 127.53.53.53\noptions timeout:30 attempts:5\n")
    os.chmod(resolv_conf, 0o644)
    enter = f"mount --bind {resolv_conf} /etc/resolv.conf && exec \"$@\""
    good = Standin()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.53.53.53", 53))
        silent.settimeout(30)
        d = Daemon({"endpoints": [endpoint("http://silent.example:4040", name="silent", timeout="1s"),
                                  endpoint(good.url, name="good")]},
                   window_s=1, wrap=("unshare", "--mount", "sh", "-c", enter, "sh"))  # fmt: skip
        assert b"silent" in silent.recv(512)
        d.wait_line("silent.*resolv.conf")
        for n in range(1, 4):
            d.wait_metric(
                lambda m, n=n: m.get("flamed_sink_retries_total", endpoint="silent") >= n, f"{n} tries"
            )
            # Up to 150 s if somebody waited for the thread.
            assert daemon.fetch(d.metrics_port, "/healthz", timeout=10)[0] == 200
        d.wait_metric(lambda m: m.sink("good").get("delivered", 0) > 0, "the good endpoint")
        final = d.stop()
    assert final.sinks["silent"] == {"shutdown": final.samples}, final.text


def test_misconfigured_endpoints_are_one_clear_line_each():
    busy()
    refusing = Standin(users={"right": "secret"})
    missing = os.path.join(harness.scratch(), "no-such-password")
    d = Daemon({
        "endpoints": [
            endpoint(refusing.url, name="stranger", basic_auth={"username": "wrong", "password": "pw"}),
            endpoint("http://no-such-host.invalid:4040", name="nowhere"),
            endpoint(refusing.url, name="unreadable",
                     basic_auth={"username": "right", "password_file": missing}),
        ],
    }, window_s=1)  # fmt: skip
    d.wait_line(r"stranger.*401|401.*stranger")
    d.wait_line(r"nowhere")
    d.wait_windows(5)
    for name, words in (("stranger", "401"), ("nowhere", "resolve"), ("unreadable", "no-such-password")):
        lines = [x for x in d.lines(name) if "an endpoint for profiles is set" not in x]
        assert len(lines) == 1 and words in lines[0], (name, lines)
    assert "No such file" in d.lines("no-such-password")[0], d.lines("no-such-password")
    assert refusing.total() == 0
    # The file comes, and all that waited is sent.
    with open(missing, "w", encoding="ascii", opener=lambda p, f: os.open(p, f, 0o600)) as f:
        f.write("secret\n")
    d.process.send_signal(daemon.signal.SIGHUP)
    d.wait_metric(lambda m: m.sink("unreadable").get("delivered", 0) > 0, "the endpoint to be usable")
    d.wait_delivered(sink="unreadable")
    final = d.stop()
    assert final.sinks["unreadable"].get("delivered") == refusing.total() == final.samples, final.text


def test_a_full_queue_drops_the_oldest_and_says_so():
    server = Standin()
    server.fault(Fault.error("unavailable", "away"))
    path, _ = daemon.program("chain_c")
    load = [start([path, "1000"])] + [start([workload(n), "1000"]) for n in ("chain_pie", "chain_cpp")]
    d = Daemon({"endpoints": [endpoint(server.url, name="full")], "queue_max_bytes": "64KiB"}, window_s=1)
    d.wait_metric(lambda m: m.sink("full").get("queue_full", 0) > 0, "the queue to be full", 50)
    assert load
    server.heal()
    d.wait_delivered(70)
    final = d.stop()
    assert server.total() == final.sinks["full"]["delivered"] < final.samples, final.text


def sizes_of(directory, names):
    """What those that are still there take of the disk."""
    total = 0
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            total += os.stat(os.path.join(directory, name)).st_blocks * 512
    return total


def test_the_directory_stays_within_its_bound():
    busy()
    directory = harness.scratch_file(".profiles")
    limit = 64 << 10
    d = Daemon({"output": {"directory": directory, "max_bytes": limit}}, window_s=1)
    stranger = os.path.join(directory, "not-ours.pb.gz")
    with open(stranger, "wb") as f:
        f.write(b"x" * 5000)
    script = "import os\nwhile True: os.system('true')\n"
    start(["/usr/bin/python3", "-c", script], stdout=subprocess.DEVNULL)
    first, most = None, 0
    while True:  # until the oldest file has gone
        names = sorted(n for n in os.listdir(directory) if re.match(r"\d{8}T", n))
        first = first or (names and names[0])
        most = max(most, sizes_of(directory, names))
        if first and first not in names:
            break
        time.sleep(0.05)
    assert limit / 2 < most <= limit, most
    assert os.path.exists(stranger)
    final = d.stop()
    assert final.sinks["directory"] == {"delivered": final.samples}, final.text


def test_tls_needs_a_certificate_that_is_known():
    openssl = harness.need_program("/usr/bin/openssl")
    cert, key = harness.scratch_file(".crt"), harness.scratch_file(".key")
    subprocess.run([openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert,
                    "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
                   check=True, capture_output=True)  # fmt: skip
    busy()
    known, unknown = Standin(tls=(cert, key)), Standin(tls=(cert, key))
    d = Daemon({"endpoints": [endpoint(known.url, name="known", tls={"ca_file": cert}),
                              endpoint(unknown.url, name="unknown")]}, window_s=1)  # fmt: skip
    d.wait_line("(?i)unknown.*certificate|certificate.*unknown")
    d.wait_metric(lambda m: m.sink("known").get("delivered", 0) > 0, "delivery by TLS")
    final = d.stop()
    check_all_arrived(known, final)
    assert unknown.total() == 0
