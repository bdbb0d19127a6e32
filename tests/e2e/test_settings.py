"""Settings in an operator's hands: what is said of a mistake, of a file that is not there, of a taken port."""

import os
import shlex
import signal
import subprocess

import daemon
import harness
from daemon import Daemon, endpoint
from harness import flamed, wait_for
from standin import Standin

#: A mistake, and what its one line must have: where it is, and what to do.
MISTAKES = (
    ("endpoint: {url: 'http://a'}", ":1: ", "is it endpoints?"),
    ("endpoints: {url: 'http://a'}", ":1: ", "begins with `- `"),
    ("endpoints:\n- url: localhost:4040", ":2: ", "http:// or https:// URL"),
    ("endpoints:\n- url: http://a\n  password: x", ":3: ", "is it basic_auth.password?"),
    ("endpoints:\n- url: http://a\n  basic_auth: u:p", ":3: ", "lines of `key: value`"),
    ("endpoints:\n- url: https://u:p@a", ":2: ", "use basic_auth"),
    ("endpoints:\n- url: http://a\n  tls: {ca_file: /ca}", ":2: ", "make it https://"),
    ("sampling:\n  frequency: 99", ":2: ", "is it frequency_hz?"),
    ("window: 15", ":1: ", "such as 15s"),
    ("queue_max_bytes: 64M", ":1: ", "such as 64MiB"),
    ("labels:\n\tstatic: {}", ":2: ", "tabs do not"),
    ("labels: {include: [container]}", ":1: ", "container_id, pod_uid, unit"),
    ("page: {listen: ':4041'}", ":1: ", "such as 127.0.0.1:4041"),
    ("metrics:\n  listen: 0.0.0.0:4041", ":2: ", "another port"),
    ("output: {directory: profiles}", ":1: ", "absolute path"),
    ("processes: {exclude: sshd}", ":1: ", "begins with `- `"),
    ("log: {level: INFO}", ":1: ", "error, warning, info, debug"),
)


def written(text, mode=0o644):
    path = harness.scratch_file(".yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    os.chmod(path, mode)
    return path


def test_each_mistake_is_one_line_that_says_where_and_what_to_do():
    for text, *words in MISTAKES:
        path = written(text)
        done = flamed("--check-config", "--config", path)
        lines = done.stderr.splitlines()
        assert done.returncode == 78 and len(lines) == 1, (text, done)
        assert lines[0].startswith(f"flamed: {path}:"), (text, lines)
        for word in words:
            assert word in lines[0], (text, lines)


# ---- a default file that is not for everybody ----


def with_own_etc(mode, command):
    """A shell command where /etc/flamed/flamed.yaml is one of this mode, for this process alone."""
    etc = harness.scratch_file(".etc")
    script = (
        f"mkdir {etc} && mount -t tmpfs none {etc} && cp -a /etc/. {etc}/ && mkdir -p {etc}/flamed && "
        f"echo 'labels: {{static: {{from: file}}}}' > {etc}/flamed/flamed.yaml && "
        f"chmod 755 {etc}/flamed && chmod {mode} {etc}/flamed/flamed.yaml && mount --bind {etc} /etc && "
        f"cd / && {command}"
    )
    argv = ["/usr/bin/unshare", "--mount", "/bin/sh", "-c", script]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60)


def as_nobody(*argv):
    """A user with the agent's capabilities, who may read what everybody may."""
    caps = ",".join("+" + c for c in ("bpf", "perfmon", "syslog"))
    user = [f"--reuid={harness.NOBODY}", f"--regid={harness.NOBODY}", "--clear-groups"]
    sets = [f"--{name}=-all,{caps}" for name in ("inh-caps", "ambient-caps", "bounding-set")]
    return "exec " + shlex.join(["/usr/bin/setpriv", *user, *sets, *argv])


def test_a_plain_user_records_with_the_defaults_when_the_settings_are_not_for_him():
    _, programs, output = harness.for_everyone(None)
    program = os.path.join(programs, "flamed")
    done = with_own_etc("600", as_nobody(program, "record", "-d", "1", "-o", output))
    assert done.returncode == 0 and os.path.getsize(output), done.stderr
    warnings = [line for line in done.stderr.splitlines() if "/etc/flamed/flamed.yaml" in line]
    assert len(warnings) == 1 and "the defaults are used" in warnings[0], done.stderr


def test_a_plain_user_sees_labels_with_the_defaults_when_the_settings_are_not_for_him():
    _, programs, _ = harness.for_everyone(None)
    labels = as_nobody("/bin/sh", "-c", f"exec {os.path.join(programs, 'flamed')} labels $$")
    done = with_own_etc("600", labels)
    assert done.returncode == 0 and "service_name: " in done.stdout, done
    assert "from: file" not in done.stdout, done.stdout
    assert len(done.stderr.splitlines()) == 1 and "the defaults are used" in done.stderr, done.stderr
    done = with_own_etc("644", labels)
    assert done.returncode == 0 and "from: file" in done.stdout and not done.stderr, done


def test_what_is_about_the_settings_themselves_does_not_go_on_without_them():
    _, programs, _ = harness.for_everyone(None)
    program = os.path.join(programs, "flamed")
    named = as_nobody(program, "labels", "1", "--config", "/etc/flamed/flamed.yaml")
    for command in (as_nobody(program, "--check-config"), as_nobody(program), named):
        done = with_own_etc("600", command)
        assert done.returncode == 78, done
        assert "Permission denied" in done.stderr and "run it as root" in done.stderr, done.stderr


# ---- what is said at the start ----


def test_an_address_is_announced_when_it_is_listened_on():
    port = daemon.free_port()
    d = Daemon({"page": Daemon.page(port)})
    assert d.wait_line(rf"page at http://127\.0\.0\.1:{port}/{d.token}/")
    assert d.wait_line(rf"metrics at http://127\.0\.0\.1:{d.metrics_port}/metrics")
    other = daemon.free_port()
    d.reload(page=Daemon.page(other))
    assert d.wait_line(rf"page at http://127\.0\.0\.1:{other}/{d.token}/")
    d.stop()


def test_a_port_that_is_taken_is_not_announced():
    taken = [Standin(), Standin()]
    ports = [s.port for s in taken]
    d = Daemon({"page": Daemon.page(ports[0]), "metrics": {"listen": f"127.0.0.1:{ports[1]}"}}, ready=False)
    d.wait_line("profiling every process")
    for port in ports:
        assert "already in use" in d.wait_line(str(port))
    assert not d.lines("(page|metrics) at "), d.stderr()
    d.stop()


def test_with_nobody_to_take_them_it_says_that_profiles_are_dropped():
    d = Daemon({"page": {"listen": "off"}})
    assert "set endpoints" in d.wait_line("profiles are dropped")
    d.stop()


def test_a_file_that_is_named_and_not_there_is_told_with_its_key():
    gone, directory = os.path.join(harness.scratch(), "gone"), harness.scratch()
    server = Standin()
    d = Daemon(
        {
            "endpoints": [
                endpoint(server.url, name="one", basic_auth={"username": "u", "password_file": gone}),
                endpoint(server.url, name="two", bearer_token_file=directory),
            ]
        }
    )
    line = d.wait_line("cannot read the password file")
    for word in ("nothing is sent", "basic_auth.password_file", gone, "No such file", "every 30 s"):
        assert word in line, line
    line = d.wait_line("cannot read the bearer token file")
    for word in ("bearer_token_file", directory, "it is no regular file"):
        assert word in line, line
    assert not d.lines("pushed"), d.stderr()
    d.stop()


def test_an_output_directory_that_cannot_be_used_is_told_with_what_to_do():
    file, above = written(""), os.path.join(harness.scratch(), "no", "such")
    for path, hint in ((file, "name a directory"), (above, "make the directory above it")):
        d = Daemon({"output": {"directory": path}}, ready=False)
        wait_for(d.ended, "the daemon to refuse")
        (line,) = d.lines()
        assert d.process.returncode == 1 and path in line and hint in line, line
    roots = harness.scratch_file(".roots")  # it belongs to root, and flamed leaves root
    os.mkdir(roots, 0o700)
    d = Daemon({"output": {"directory": roots}}, ready=False)
    line = d.wait_line("cannot write to the output directory")
    assert roots in line and "belong to the user" in line, line
    assert not d.lines("profiles are written"), d.stderr()


def test_settings_that_became_something_else_are_told_by_name():
    d = Daemon()
    os.unlink(d.config)
    for make in (os.mkfifo, os.mkdir):
        make(d.config)
        told = len(d.lines("the settings cannot be read"))
        d.process.send_signal(signal.SIGHUP)
        wait_for(lambda told=told: len(d.lines("the settings cannot be read")) > told, "the reload to fail")
        assert "it is no regular file" in d.lines("the settings cannot be read")[-1], d.stderr()
        os.unlink(d.config) if make is os.mkfifo else os.rmdir(d.config)
    d.stop()


def test_without_proc_each_command_says_so_in_one_line():
    for command in ((), ("record", "-d", "1", "-o", "/dev/null"), ("status",)):
        script = 'mount -t tmpfs none /proc && exec "$0" "$@"'
        argv = ["/usr/bin/unshare", "--mount", "/bin/sh", "-c", script, harness.FLAMED, *command]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, (command, done)
        assert "is /proc mounted" in done.stderr, (command, done)


# ---- rights ----

#: What is lost without a capability of the reader's.
LOSSES = {
    "cap_sys_ptrace": "almost none of their stacks",
    "cap_dac_read_search": "not everybody may read",
    "cap_checkpoint_restore": "deleted or replaced",
}


def test_what_a_missing_right_costs_is_said_at_the_start_and_in_the_status():
    capsh = harness.need_program("/usr/sbin/capsh")
    for name, text in LOSSES.items():
        d = Daemon(wrap=[capsh, f"--drop={name}", "--", "-c", 'exec "$0" "$@"'])
        line = d.wait_line("rights are missing")
        assert f"{name}: " in line and text in line and len(d.lines("rights are missing")) == 1, line
        assert not any(other in line for other in LOSSES if other != name), line
        wait_for(lambda d=d: d.api("status")["missing_rights"], "the agent's status to come")
        said = flamed("status", "--socket", d.socket).stdout
        assert f"Missing rights: {name}: " in said and text in said, said
        d.stop()
    d = Daemon()
    d.wait_metric(lambda m: m.get("flamed_samples_seen_total") > 0, "the agent's status to come")
    assert not d.api("status")["missing_rights"] and "Missing rights" not in flamed("status", "--socket", d.socket).stdout
    d.stop()
