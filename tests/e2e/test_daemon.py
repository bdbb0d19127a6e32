"""The daemon's life: one a host, reloads, ports, rights, profiles on demand, its end."""

import base64
import concurrent.futures
import fcntl
import json
import os
import re
import signal
import subprocess
import time

import daemon
import harness
import pprof
from daemon import Daemon, endpoint, fetch
from harness import start, wait_for, workload
from standin import Standin


def busy(name="chain_c"):
    return start([workload(name), "1000"])


# ---- one a host ----


def test_a_second_daemon_says_who_is_first_and_takes_over():
    first = Daemon()
    second = Daemon(runtime=first.runtime, ready=False)
    line = second.wait_line(str(first.pid))
    time.sleep(1)
    assert not second.ended() and len(second.lines()) <= 2, second.lines()
    first.stop()
    second.wait_ready()
    assert second.api("status"), line
    second.stop()


def test_a_daemon_that_waits_ends_at_a_signal():
    first = Daemon()
    second = Daemon(runtime=first.runtime, ready=False)
    second.wait_line(str(first.pid))
    second.process.send_signal(signal.SIGTERM)
    wait_for(second.ended, "the waiting daemon to end", 5)
    assert second.process.returncode == 0, second.stderr()
    first.stop()


def test_a_lock_that_says_no_pid_is_told_without_one():
    runtime = harness.scratch_file(".run")
    os.mkdir(runtime)
    with open(os.path.join(runtime, "flamed.lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        d = Daemon(runtime=runtime, ready=False)
        line = d.wait_line("another flamed runs")
        assert "pid=" not in line and runtime in line, line
    d.wait_ready()
    d.stop()


def test_an_error_of_the_status_command_is_flameds():
    done = harness.flamed("status", "--socket", "/nonexistent/flamed.sock")
    assert done.returncode != 0 and done.stderr.startswith("flamed: "), done.stderr


def test_the_labels_command_reads_as_much_as_the_daemon():
    """Of many hierarchies the last lines count, where v2 is: they need not be in the first 4 KiB."""
    unshare = harness.need_program("/usr/bin/unshare")
    process, text = busy(), harness.scratch_file(".cgroup")
    with open(text, "w", encoding="ascii") as f:
        f.write("".join(f"{i}:c{i}:/{'x' * 500}\n" for i in range(10, 0, -1)) + "0::/system.slice/nginx.service\n")
    script = f"mount --bind {text} /proc/{process.pid}/cgroup && exec {harness.FLAMED} labels {process.pid}"
    done = subprocess.run([unshare, "-m", "sh", "-c", script], capture_output=True, text=True, timeout=30, check=False)
    assert "service_name: nginx " in done.stdout, done


def test_a_killed_daemon_leaves_nothing_that_is_in_the_way():
    first = Daemon()
    children = list(first.helpers().values())
    first.process.kill()
    first.process.wait()
    second = Daemon(runtime=first.runtime)
    assert second.api("status")
    for pid in children:
        wait_for(lambda pid=pid: not os.path.exists(f"/proc/{pid}"), f"child {pid} to be gone")
    second.stop()


def test_record_runs_beside_it():
    d = Daemon()
    ran = harness.Recording("-d", "1", ready=False).finish(sig=None)
    assert ran.returncode == 0, ran.stderr
    d.stop()


# ---- ports ----


def test_taken_ports_are_one_line_each_and_the_rest_goes_on():
    taken = [Standin(), Standin()]
    server = Standin()
    busy()
    ports = [s.port for s in taken]
    d = Daemon({"endpoints": [endpoint(server.url)], "page": Daemon.page(ports[0]),
                "metrics": {"listen": f"127.0.0.1:{ports[1]}"}}, ready=False)  # fmt: skip
    for port in ports:
        line = d.wait_line(str(port))
        assert "already in use" in line and len(d.lines(str(port))) == 1, d.lines(str(port))
    wait_for(lambda: server.total() > 0, "profiles to arrive all the same")
    listeners = d.api("status")["listeners"]
    assert [x for x in listeners if not x["up"]], listeners
    final = d.stop()
    assert server.total() == final.samples


def test_nothing_is_shown_without_the_token():
    busy()
    port = daemon.free_port()
    d = Daemon({"page": Daemon.page(port)})
    d.wait_windows(1)
    paths = ("/", "/api/v1/status", "/api/v1/services", "/debug/pprof/profile?seconds=1", "/metrics",
             "/app.js", f"/{'0' * 32}/", "/../", "//")  # fmt: skip
    for path in paths:
        status, _, body = fetch(port, path)
        assert status in (400, 401, 404), (path, status)
        assert b"chain_c" not in body and d.token.encode() not in body, (path, body[:300])
    assert fetch(port, "/api/v1/status")[0] == 401
    status, _, body = fetch(port, f"/{d.token}/api/v1/services?from=-300")
    assert status == 200 and b"chain_c" in body
    assert re.search(f"http://127.0.0.1:{port}/{d.token}/", d.stderr()), d.stderr()
    status, _, body = fetch(d.metrics_port, "/api/v1/services")
    assert status == 404 and b"chain_c" not in d.metrics().text.encode()
    d.stop()


# ---- reloads ----


def test_a_reload_changes_labels_and_endpoints():
    busy()
    old, new = Standin(), Standin()
    d = Daemon({"endpoints": [endpoint(old.url, name="old")], "labels": {"static": {"stage": "one"}}},
               window_s=1)  # fmt: skip
    wait_for(lambda: old.stored(stage="one"), "the first label to arrive")
    before = d.metrics()
    d.reload(endpoints=[endpoint(new.url, name="new")], labels={"static": {"stage": "two"}})
    wait_for(lambda: new.stored(stage="two"), "the second label to arrive")
    after = d.metrics()
    assert after.get("flamed_config_last_reload_successful") == 1
    assert before.by("flamed_config_hash", "hash") != after.by("flamed_config_hash", "hash")
    assert len(after.by("flamed_config_hash", "hash")) == 1
    final = d.stop()
    assert old.total() + new.total() + final.sinks["old"].get("endpoint_removed", 0) == final.samples, final.text
    assert not old.stored(stage="two") and not old.duplicates() and not new.duplicates()


def test_a_bad_reload_keeps_the_running_configuration():
    busy()
    server = Standin()
    d = Daemon({"endpoints": [endpoint(server.url)]}, window_s=1)
    hashes = d.metrics().by("flamed_config_hash", "hash")
    with open(d.config, "a", encoding="utf-8") as f:
        f.write("\nsampling: {frequency_hz: fast}\n")
    d.process.send_signal(signal.SIGHUP)
    d.wait_metric(lambda m: m.get("flamed_config_last_reload_successful") == 0, "the metric of the reload")
    lines = d.lines("the running settings stay")
    assert len(lines) == 1 and re.search(re.escape(d.config) + r":\d+: ", lines[0]), lines
    d.reload(window="0s")
    line = wait_for(lambda: d.lines("the running settings stay")[1:], "a second line")[0]
    assert re.search(re.escape(d.config) + r":\d+: window", line), line
    assert d.metrics().by("flamed_config_hash", "hash") == hashes
    n = server.total()
    wait_for(lambda: server.total() > n, "profiles to go on arriving")
    d.reload(window="1s")
    d.wait_metric(lambda m: m.get("flamed_config_last_reload_successful") == 1, "a good reload")
    d.stop()


def test_a_key_that_needs_a_restart_is_named():
    d = Daemon()
    d.reload(sampling={"frequency_hz": 50})
    line = d.wait_line("frequency_hz")
    assert "restart" in line, line
    d.stop()


def test_processes_that_are_excluded_cost_nothing():
    path, service = daemon.program("chain_c", "excluded")
    kept_path, kept = daemon.program("chain_pie", "kept")
    thin_path, thin = daemon.program("duty", "thinned")
    for p in (path, kept_path):
        start([p, "1000"])
    start([thin_path, "40", "1000"])
    d = Daemon({"processes": {"exclude": [service], "thin": {thin: "4"}}}, window_s=1)
    d.wait_metric(lambda m: m.dropped().get("filtered", 0) > 100, "samples to be filtered")
    d.wait_metric(lambda m: m.dropped().get("thinned", 0) > 50, "samples to be thinned")
    d.wait_windows(2)
    services = d.services(2)
    assert service not in services and kept in services, sorted(services)
    final = d.stop()
    assert final.drops["filtered"] > 100, final.text


def test_short_processes_that_are_excluded_leave_nothing():
    """Each is over before its labels are known, or nearly so."""
    server = Standin()
    path, service = daemon.program("chain_c", "short-excluded")
    d = Daemon({"processes": {"exclude": [service]}, "endpoints": [endpoint(server.url, name="main")]}, window_s=1)
    for _ in range(40):
        harness.run_each({0: [path, "0.1"]})
    d.wait_windows(1)
    d.wait_delivered()
    d.wait_metric(lambda m: m.sink("main").get("excluded", 0) > 20, "samples to be left out")
    final = d.stop()
    assert not server.stored(service_name=service)
    fates = final.sinks["main"]
    assert server.total() == fates["delivered"], final.text
    assert final.samples == final.handed_on["main"] == sum(fates.values()), final.text


# ---- profiles on demand ----


def take_profile(d, port, seconds, more=""):
    status, headers, body = fetch(port, f"/{d.token}/debug/pprof/profile?seconds={seconds}{more}")
    path = harness.scratch_file(".pb.gz")
    with open(path, "wb") as f:
        f.write(body)
    return status, headers, path


def cpu_seconds_of(pid):
    with open(f"/proc/{pid}/schedstat", encoding="ascii") as f:
        return int(f.read().split()[0]) / 1e9


def test_a_profile_on_demand_is_as_long_as_asked():
    process = busy()
    port = daemon.free_port()
    d = Daemon({"page": Daemon.page(port)}, window_s=15)
    begin, used, stolen = time.monotonic(), cpu_seconds_of(process.pid), harness.stolen_ns()
    status, headers, path = take_profile(d, port, 2)
    took, used = time.monotonic() - begin, cpu_seconds_of(process.pid) - used
    stolen = (harness.stolen_ns() - stolen) / 1e9
    assert status == 200, status
    assert not pprof.validate(path), pprof.validate(path)[:5]
    profile = pprof.load(path)
    assert abs(profile.duration_nanos - 2e9) < 0.15e9, profile.duration_nanos
    assert took < 10, f"{took:.1f} s for a profile of 2 s"
    stacks = [s for s in harness.load_stacks(path) if s.pid == process.pid]
    sampled = harness.cpu_ns(stacks) / 1e9
    # The CPU time is that of a somewhat longer time.
    assert 0.5 * used * 2 / took - 0.2 < sampled < used + 0.1 + stolen, (sampled, used, took)
    harness.check_chain("chain_c", stacks, harness.START + "a;b;c;spin(;|$)")
    status, _, path = take_profile(d, port, 1, "&service=" + harness.service_of(workload("chain_c")))
    assert {s.service for s in harness.load_stacks(path)} == {harness.service_of(workload("chain_c"))}
    for bad in ("0", "121", "x", "-1"):
        assert take_profile(d, port, bad)[0] == 400, bad
    d.stop()


def test_the_seventeenth_profile_at_once_is_refused():
    busy()
    port = daemon.free_port()
    d = Daemon({"page": Daemon.page(port)})
    with concurrent.futures.ThreadPoolExecutor(17) as pool:
        results = list(pool.map(lambda _: take_profile(d, port, 3), range(17)))
    statuses = sorted(r[0] for r in results)
    assert statuses == [200] * 16 + [503], statuses
    refused = next(r for r in results if r[0] == 503)
    assert refused[1].get("Retry-After"), dict(refused[1])
    assert take_profile(d, port, 1)[0] == 200, "the places must be free again"
    d.stop()


def test_go_tool_pprof_fetches_a_profile_itself():
    go = harness.need_program("/usr/bin/go")
    busy()
    port = daemon.free_port()
    d = Daemon({"page": {**Daemon.page(port), "basic_auth": {"username": "me", "password": "page-pw"}}})
    env = {**os.environ, "HOME": harness.scratch(), "PPROF_TMPDIR": harness.scratch()}
    for url in (f"http://127.0.0.1:{port}/{d.token}/debug/pprof/profile",
                f"http://me:page-pw@127.0.0.1:{port}/debug/pprof/profile"):  # fmt: skip
        done = subprocess.run([go, "tool", "pprof", "-top", "-seconds", "1", url], env=env,
                              capture_output=True, text=True, timeout=60)  # fmt: skip
        assert done.returncode == 0 and "spin" in done.stdout, (url, done.stdout, done.stderr)
    basic = base64.b64encode(b"me:wrong").decode()
    assert fetch(port, "/api/v1/status", {"Authorization": f"Basic {basic}"})[0] == 401
    d.stop()


# ---- rights ----

CAPS = ("bpf", "perfmon", "syslog", "sys_ptrace", "dac_read_search", "checkpoint_restore")


def test_a_plain_user_with_the_six_capabilities_is_enough():
    setpriv = harness.need_program("/usr/bin/setpriv")
    _, directory, _ = harness.for_everyone(None)
    runtime = os.path.join(os.path.dirname(directory), "run")
    os.mkdir(runtime)
    os.chown(runtime, harness.NOBODY, harness.NOBODY)
    caps = ",".join("+" + c for c in CAPS)
    wrap = [setpriv, f"--reuid={harness.NOBODY}", f"--regid={harness.NOBODY}", "--clear-groups",
            f"--inh-caps=-all,{caps}", f"--ambient-caps=-all,{caps}", f"--bounding-set=-all,{caps}"]  # fmt: skip
    process = busy()
    server = Standin()
    config_dir = os.path.dirname(directory)
    d = Daemon({"endpoints": [endpoint(server.url)]}, wrap=wrap, runtime=runtime, cwd="/",
               flamed=os.path.join(directory, "flamed"), config_dir=config_dir)  # fmt: skip
    wait_for(lambda: server.stored(service_name=harness.service_of(workload("chain_c"))), "profiles to arrive")
    status = d.api("status")
    for p in status["processes"]:
        assert p["uid"] == harness.NOBODY, p
        held = sorted(p["caps_permitted"])
        want = {"agent": sorted(CAPS), "reader": sorted(CAPS[3:])}.get(p["name"], [])
        assert held == want, (p, want)
        assert p["no_new_privs"] or p["name"] == "agent", p
    assert process.poll() is None
    final = d.stop()
    assert server.total() == final.samples
    stacks = [s for p in server.stored(service_name=harness.service_of(workload("chain_c"))) for s in p.stacks]
    assert any(";a;b;c;spin;" in ";".join([*s, ""]) for s in stacks), stacks[:3]


def test_from_root_each_process_holds_what_the_table_says():
    if os.getuid():
        raise harness.Skip("needs root")
    d = Daemon()
    pids = {"agent": d.pid, **d.helpers()}
    masks = {}
    for name, pid in pids.items():
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
            fields = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
        assert set(fields["Uid"].split()) != {"0"}, (name, fields["Uid"])
        masks[name] = int(fields["CapPrm"], 16), int(fields["CapEff"], 16)
        assert fields["Seccomp"] == "2" or name in ("agent", "reader"), (name, fields["Seccomp"])
    bit = {"bpf": 39, "perfmon": 38, "syslog": 34, "sys_ptrace": 19, "dac_read_search": 2, "checkpoint_restore": 40}
    mask = lambda names: sum(1 << bit[n] for n in names)  # noqa: E731
    assert masks["agent"] == (mask(CAPS), mask(CAPS[:3])), masks
    assert masks["reader"] == (mask(CAPS[3:]),) * 2, masks
    assert masks["symbolizer"] == masks["exporter"] == (0, 0), masks
    d.stop()


# ---- its end ----


def test_ctrl_c_delivers_the_last_window():
    busy()
    server = Standin()
    d = Daemon({"endpoints": [endpoint(server.url)]}, window_s=5)
    # Once what runs here has names; on a busy host the first ones take longer than a stop may.
    wait_for(lambda: server.total() > 0, "the first window to arrive", 60)
    before = server.total()
    d.wait_metric(lambda m: m.get("flamed_samples_total") > before + 50, "a last window that is worth it")
    final = d.stop(signal.SIGINT)
    assert server.total() == final.samples > before + 50, (server.total(), final.text)


def test_a_stopped_daemon_can_start_again_in_its_directory():
    d = Daemon()
    token = d.token
    d.stop()
    again = Daemon(runtime=d.runtime)
    assert again.token != token
    mode = os.stat(os.path.join(d.runtime, "page.token")).st_mode & 0o777
    assert mode == 0o640, oct(mode)
    mode = os.stat(again.socket).st_mode & 0o777
    assert mode == 0o660, oct(mode)
    again.stop()


def test_flamed_status_without_a_daemon_is_one_clear_line():
    done = harness.flamed("status", "--socket", os.path.join(harness.scratch(), "none.sock"))
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done
    assert "none.sock" in done.stderr


def test_flamed_status_prints_json_too():
    d = Daemon()
    done = harness.flamed("status", "--socket", d.socket, "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["processes"], done
    d.stop()


def test_the_documented_metrics_are_those_that_there_are():
    server = Standin()
    d = Daemon({"endpoints": [endpoint(server.url)]})
    d.wait_delivered()
    with open(os.path.join(harness.ROOT, "docs", "api.md"), encoding="utf-8") as f:
        rows = [line.split("|")[1] for line in f if line.startswith("| `flamed_")]
    documented = {name for row in rows for name in re.findall(r"`(flamed_[a-z_]+)`", row)}
    there = set(d.wait_metric(lambda m: m.get("flamed_sink_samples_total") > 0, "a delivery").values)
    assert documented == there, (documented - there, there - documented)
    d.stop()
