"""The unit under a real systemd: Type=notify, user, capabilities, and what hardening leaves.

systemd is the first process of a container of podman. It has process ids of its own there, so that
flamed counts samples but cannot name them: what is tested is that all of it starts, works and ends.
"""

import os
import re
import subprocess

import container_root
import harness
import packaging_files as files

CONFIG = """
window: 1s
output: {directory: /var/lib/flamed/profiles}
log: {level: debug}
"""


class Machine:
    """A booted systemd; only one per test program."""

    def __init__(self):
        self.root = container_root.make("systemd", "systemd-sysv")
        self.podman = container_root.podman(harness.scratch_file(".podman"))
        self.name = f"flamed-systemd-{os.getpid()}"

    def __enter__(self):
        argv = [*self.podman, "run", "-d", f"--name={self.name}", "--systemd=always"]
        argv += ["--privileged", "--network=none", *container_root.ULIMITS, "--rootfs", self.root, "/sbin/init"]
        container_root.run(argv)
        harness.wait_for(lambda: "running" in self.boot() or "degraded" in self.boot(), "boot", 60)
        return self

    def __exit__(self, *_):
        subprocess.run([*self.podman, "rm", "-f", "-t", "0", self.name], capture_output=True)

    def boot(self):
        return self.run("systemctl is-system-running").stdout

    def run(self, command):
        argv = [*self.podman, "exec", self.name, "/bin/sh", "-c", command]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60)

    def must(self, command):
        done = self.run(command)
        assert done.returncode == 0, f"{command}: {done.stdout} {done.stderr}\n{self.log()}"
        return done.stdout

    def log(self):
        return self.run("journalctl -u flamed --no-pager -o cat | tail -n 60").stdout

    def property(self, name):
        return self.must(f"systemctl show flamed -P {name}").strip()

    def configure(self, text):
        with open(os.path.join(self.root, "etc/flamed/flamed.yaml"), "w", encoding="utf-8") as f:
            f.write(text)

    def wait_for(self, condition, what, seconds=30):
        try:
            return harness.wait_for(condition, what, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()}") from None


def test_the_service_starts_works_reloads_and_stops():
    with Machine() as m:
        m.configure(CONFIG)
        m.must("systemctl start flamed")  # returns when it is ready
        assert m.property("ActiveState") == "active"
        check_rights(m)
        profiles = "ls /var/lib/flamed/profiles | grep -c pb.gz"
        m.wait_for(lambda: int(m.run(profiles).stdout or 0) >= 2, "profiles as files")
        assert "cannot be opened" not in m.log(), m.log()
        check_reload(m)
        check_restart(m)
        m.must("systemctl stop flamed")
        assert m.property("Result") == "success" and m.property("ExecMainStatus") == "0", m.log()
        check_bad_configuration(m)


test_the_service_starts_works_reloads_and_stops.timeout = 900  # the first time, the root is made


def check_rights(m):
    uid = container_root.own_uid(m.root)
    main = m.property("MainPID")
    pids = [main, *m.must(f"cat /proc/{main}/task/{main}/children").split()]
    assert len(pids) == 4, f"{pids}: agent, reader, symbolizer, exporter"
    held = set()
    for pid in pids:
        text = m.must(f"cat /proc/{pid}/status")
        s = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
        assert set(s["Uid"].split()) == {str(uid)}, s["Uid"]
        assert s["NoNewPrivs"] == "1" and s["Seccomp"] == "2", text
        held.add(int(s["CapPrm"], 16))
    assert 0 in held and len(held) == 3, held  # agent, reader, and the two that have nothing
    assert max(bin(caps).count("1") for caps in held) == len(files.capabilities())


def check_reload(m):
    m.configure(CONFIG + "labels: {static: {env: test}}\n")
    m.must("systemctl reload flamed")
    m.wait_for(lambda: "settings were reloaded" in m.log(), "the reload")
    m.configure(CONFIG + "lables: {}\n")
    m.must("systemctl reload flamed")
    m.wait_for(lambda: "unknown key 'lables'" in m.log(), "the bad reload to be told")
    assert m.property("ActiveState") == "active"


def check_restart(m):
    """A daemon that was killed comes back with systemd."""
    m.configure(CONFIG)
    before = m.property("MainPID")
    m.must(f"kill -KILL {before}")
    m.wait_for(
        lambda: m.property("ActiveState") == "active" and m.property("MainPID") != before,
        "the restart",
    )
    assert m.property("NRestarts") == "1"


def check_bad_configuration(m):
    """It is not tried again and again."""
    m.configure("window: 0s\n")
    assert m.run("systemctl start flamed").returncode != 0
    m.wait_for(lambda: m.property("ActiveState") == "failed", "the failure")
    assert m.property("ExecMainStatus") == "78"
    assert re.search(r"/etc/flamed/flamed.yaml:1: window: 0s is not in", m.log()), m.log()
