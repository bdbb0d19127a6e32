"""flamed in a container, as the DaemonSet runs it: real runc, a Debian root, this host's processes.

Rights, variables and mounts are read from config/kubernetes/daemonset.yaml, so that what is tested
is what is written there.
"""

import contextlib
import glob
import os
import shlex
import signal
import subprocess

import container_root
import harness
import packaging_files as files

#: Of a machine that is busy with other tests: what the kernel has to do for a container's start.
START_S = 60


@harness.once
def root():
    return container_root.make()


def own_uid():
    return container_root.own_uid(root())


# ---- the container ----


def volume(spec, directory):
    """The host's side of a volume; what the kubelet would make is made in `directory`."""
    if "hostPath" in spec:
        return spec["hostPath"]["path"]
    path = os.path.join(directory, spec["name"])
    os.mkdir(path)
    if "emptyDir" in spec:
        os.chmod(path, 0o777)
        return path
    (secret,) = [
        d
        for d in files.documents()
        if d["kind"] == "Secret" and d["metadata"]["name"] == spec["secret"]["secretName"]
    ]
    for name, value in secret["stringData"].items():
        file = os.path.join(path, name)
        with open(file, "w", encoding="utf-8") as f:
            f.write(value)
        os.chmod(file, spec["secret"]["defaultMode"])
    return path


def pod_arguments(directory):
    """What the DaemonSet says, for podman."""
    pod = files.daemonset()["spec"]["template"]["spec"]
    container = files.container()
    context = container["securityContext"]
    argv = [f"--user={context['runAsUser']}"]
    if pod.get("hostPID"):
        argv.append("--pid=host")
    argv += [f"--cap-drop={name.lower()}" for name in context["capabilities"]["drop"]]
    argv += [f"--cap-add={name}" for name in context["capabilities"]["add"]]
    if context["privileged"]:
        argv.append("--privileged")
    if context["readOnlyRootFilesystem"]:
        argv += ["--read-only", "--read-only-tmpfs=false"]
    if not context["allowPrivilegeEscalation"]:
        argv.append("--security-opt=no-new-privileges")
    if context["seccompProfile"]["type"] == "Unconfined":
        argv.append("--security-opt=seccomp=unconfined")
    volumes = {spec["name"]: volume(spec, directory) for spec in pod["volumes"]}
    for mount in container["volumeMounts"]:
        mode = ":ro" if mount.get("readOnly") else ""
        argv.append(f"--volume={volumes[mount['name']]}:{mount['mountPath']}{mode}")
    return argv


class Container:
    """A container that is gone at the end of the `with`."""

    def __init__(self, *command, environment=None, owner=0, arguments=None):
        self.directory = harness.scratch_file(".pod")
        self.output = os.path.join(self.directory, "out")
        os.makedirs(self.output)
        os.chown(self.output, owner, owner)
        self.name = f"flamed-test-{os.getpid()}-{os.path.basename(self.directory)}"
        self.pidfile = os.path.join(self.directory, "pid")
        self.podman = container_root.podman(os.path.join(self.directory, "podman"))
        argv = [*self.podman, "run", "--rm", f"--name={self.name}", "--network=none"]
        argv += [*container_root.ULIMITS, "--log-driver=none"]
        argv += [f"--pidfile={self.pidfile}", f"--volume={self.output}:/out"]
        argv += arguments or pod_arguments(self.directory)
        argv += [f"--env={k}={v}" for k, v in (environment or {}).items()]
        self.argv = [*argv, "--rootfs", root(), *command]

    def __enter__(self):
        self.log_path = os.path.join(self.directory, "log")
        with open(self.log_path, "wb") as log:
            self.process = harness.start(
                self.argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        return self

    def __exit__(self, *_):
        subprocess.run([*self.podman, "rm", "-f", "-t", "0", self.name], capture_output=True)

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="backslashreplace") as f:
            return f.read()

    def wait_for(self, condition, what, seconds=START_S):
        def alive():
            value = condition()
            assert value or self.process.poll() is None, f"it ended: {self.log()[-3000:]}"
            return value

        try:
            return harness.wait_for(alive, what, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.log()[-3000:]}") from None

    def pid(self):
        def number():
            with contextlib.suppress(OSError, ValueError):
                with open(self.pidfile, encoding="ascii") as f:
                    return int(f.read())
            return None

        return self.wait_for(number, "the container to start")

    def stop(self, seconds):
        self.process.send_signal(signal.SIGTERM)
        harness.wait_for(lambda: self.process.poll() is not None, "its end", seconds)
        return self.process.returncode


def documented_arguments():
    """The options of docs/install.md's own command, without name and image."""
    with open(os.path.join(harness.ROOT, "docs/install.md"), encoding="utf-8") as f:
        text = f.read().replace("\\\n", " ")
    command = shlex.split(next(line for line in text.splitlines() if line.startswith("podman run ")))
    assert command[-1] == "flamed" and command[2] == "-d" and command[3] == "--name", command
    return command[5:-1]


def busy():
    """A program of the host, outside of the container."""
    return harness.start([harness.workload("chain_c"), "120"], stdout=subprocess.DEVNULL)


def status(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)


def test_record_in_a_container_sees_the_host():
    pid = busy().pid
    with Container("/usr/bin/flamed", "record", "-d", "3", "-o", "/out/host.pb.gz") as c:
        c.wait_for(lambda: c.process.poll() is not None, "the end of the recording")
        assert c.process.returncode == 0, c.log()
        stacks = harness.load_stacks(os.path.join(c.output, "host.pb.gz"))
    mine = [s for s in stacks if s.pid == pid]
    harness.check_complete("a program of the host", mine, at_least=50)
    harness.check_chain("a program of the host", mine, harness.START + "a;b;", at_least=50)


test_record_in_a_container_sees_the_host.timeout = 900  # the first time, the root is made


def test_the_daemonset_profiles_the_host():
    environment = {
        **{k: v for k, v in files.environment("node-1").items() if "ENDPOINT" not in k},
        "FLAMED_OUTPUT_DIRECTORY": "/out",
        "FLAMED_WINDOW": "2s",
    }
    program = busy()
    service = harness.service_of(harness.workload("chain_c"))
    with Container("/usr/bin/flamed", environment=environment, owner=own_uid()) as c:
        pid = c.pid()

        def chains():
            for path in glob.glob(os.path.join(c.output, f"*-{service}-*.pb.gz")):
                stacks = [s for s in harness.load_stacks(path) if s.pid == program.pid]
                if harness.total(stacks) >= 50:
                    return stacks
            return None

        stacks = c.wait_for(chains, "a profile of the host's program")
        harness.check_chain("a program of the host", stacks, harness.START + "a;b;", at_least=50)
        check_rights(pid)
        check_probes(c, pid)
        assert c.stop(15) == 0, c.log()


test_the_daemonset_profiles_the_host.timeout = 900


def test_the_documented_command_starts_it():
    with Container("/usr/bin/flamed", arguments=documented_arguments()) as c:
        c.wait_for(lambda: "profiling every process" in c.log(), "its first line")
        check_rights(c.pid())
        assert c.stop(15) == 0, c.log()


test_the_documented_command_starts_it.timeout = 900


def check_rights(pid):
    """Nobody is root any more, and only agent and reader hold anything."""
    processes = {pid: "agent", **harness.children(pid)}
    assert len(processes) == 4, processes
    for child, name in processes.items():
        s = status(child)
        assert set(s["Uid"].split()) == {str(own_uid())}, f"{name}: {s['Uid']}"
        assert s["NoNewPrivs"] == "1", name
        if "symbolizer" in name or "exporter" in name:
            assert int(s["CapPrm"], 16) == 0, f"{name}: {s['CapPrm']}"


def check_probes(c, pid):
    """As the kubelet would ask, from the container's network."""
    container = files.container()
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        get = container[probe]["httpGet"]
        url = f"http://127.0.0.1:{ports[get['port']]}{get['path']}"
        code = f"import urllib.request as u; print(u.urlopen({url!r}, timeout=5).status)"
        argv = ["nsenter", f"--net=/proc/{pid}/ns/net", "/usr/bin/python3", "-c", code]

        def answers(argv=argv):
            done = subprocess.run(argv, capture_output=True, text=True)
            return done.stdout.strip() == "200"

        c.wait_for(answers, f"{probe}: {url}", 20)
