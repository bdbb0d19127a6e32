"""What is installed: the unit, the user, the configuration, and what the container files say."""

import functools
import glob
import os
import re
import stat
import subprocess

import yaml

import harness
import packaging_files as files

UNIT = "usr/lib/systemd/system/flamed.service"


@functools.cache
def installed():
    """`make install` as a package does it; returns its DESTDIR."""
    dest = harness.scratch_file(".dest")
    install(dest)
    return dest


def install(dest):
    # Nothing is built here: what is there is what is tested.
    argv = ["make", "-C", harness.ROOT, "-o", "all", f"BIN={harness.BIN}", f"DESTDIR={dest}"]
    done = subprocess.run([*argv, "PREFIX=/usr", "install"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def verify(text):
    """What systemd says of a unit of this text, whose programs are those of DESTDIR; "" is good."""
    directory = harness.scratch_file(".units")
    os.mkdir(directory)
    path = os.path.join(directory, "flamed.service")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text.replace("ExecStart=/usr/bin/", f"ExecStart={installed()}/usr/bin/"))
    argv = ["/usr/bin/systemd-analyze", "verify", "--man=no", "--recursive-errors=no", path]
    done = subprocess.run(argv, capture_output=True, text=True)
    output = done.stdout + done.stderr
    assert done.returncode == 0 or output, "verify failed and did not say why"
    return output


def test_the_installed_unit_is_valid():
    output = verify(read(os.path.join(installed(), UNIT)))
    assert not output, output


def test_a_unit_that_is_not_valid_would_be_told():
    good = read(os.path.join(installed(), UNIT))
    for line in ("Type=notify", "ProtectSystem=strict", "LimitNOFILE=65536", "TimeoutStopSec=15s"):
        key = line.split("=")[0]
        assert f"\n{line}\n" in good
        output = verify(good.replace(line, f"{key}=nonsense"))
        assert key in output or "nonsense" in output, f"{key}=nonsense passed: {output}"
    assert "Unknown key" in verify(good.replace("LimitCORE=0", "LimitCORES=0"))
    assert "not executable" in verify(good.replace("/usr/bin/flamed", "/usr/bin/no-such"))


def test_the_unit_has_exactly_the_capabilities_of_the_table():
    unit = read(os.path.join(installed(), UNIT))
    want = files.capabilities()
    assert len(want) == 6, want
    for key in ("AmbientCapabilities", "CapabilityBoundingSet"):
        (value,) = re.findall(rf"^{key}=(.*)$", unit, re.M)
        assert set(value.split()) == {f"CAP_{name}" for name in want}, f"{key}={value}"


def test_the_unit_takes_nothing_away_that_flamed_needs():
    """Seen to break it under a real systemd: programs, names or kernel symbols are gone."""
    unit = read(os.path.join(installed(), UNIT))
    keys = set(re.findall(r"^(\w+)=", unit, re.M))
    breaks = (
        "CPUQuota PrivateTmp PrivateDevices ProtectHome ProtectKernelLogs ProtectKernelTunables "
        "ProtectKernelModules ProtectProc ProcSubset ProtectHostname PrivateUsers PrivateNetwork "
        "RestrictSUIDSGID RootDirectory DynamicUser"
    )
    assert not keys & set(breaks.split()), keys & set(breaks.split())
    assert "Type=notify" in unit and "\nUser=flamed\n" in unit


def test_the_prefix_is_in_the_unit():
    dest = harness.scratch_file(".dest")
    argv = ["make", "-C", harness.ROOT, "-o", "all", f"BIN={harness.BIN}", f"DESTDIR={dest}"]
    subprocess.run([*argv, "PREFIX=/opt/flamed", "install"], check=True, capture_output=True)
    unit = read(os.path.join(dest, "opt/flamed/lib/systemd/system/flamed.service"))
    assert "\nExecStart=/opt/flamed/bin/flamed --config /etc/flamed/flamed.yaml\n" in unit, unit
    assert os.access(os.path.join(dest, "opt/flamed/bin/flamed"), os.X_OK)


def test_a_configuration_that_is_there_is_kept():
    dest = harness.scratch_file(".dest")
    install(dest)
    path = os.path.join(dest, "etc/flamed/flamed.yaml")
    assert read(path) == read(os.path.join(harness.ROOT, "config/flamed.yaml"))
    mode = stat.S_IMODE(os.stat(path).st_mode)
    assert mode == 0o640, f"{mode:o}: it may hold a password"
    with open(path, "w", encoding="utf-8") as f:
        f.write("window: 10s\n")
    install(dest)
    assert read(path) == "window: 10s\n"


def test_the_user_is_made():
    path = os.path.join(installed(), "usr/lib/sysusers.d/flamed.conf")
    root = harness.scratch_file(".root")
    os.makedirs(os.path.join(root, "etc"))
    argv = ["/usr/bin/systemd-sysusers", f"--root={root}", path]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    users = read(os.path.join(root, "etc/passwd"))
    assert re.search(r"^flamed:[^:]*:\d+:\d+:[^:]*:/:", users, re.M), users
    assert re.search(r"^flamed:", read(os.path.join(root, "etc/group")), re.M)


def test_the_user_is_the_same_without_systemd():
    """`make install` on a host without systemd-sysusers, and the container."""
    (options,) = re.findall(r"^USERADD_FLAMED := (.*)$", read(os.path.join(harness.ROOT, "Makefile")), re.M)
    assert f"useradd {options} flamed\n" in read(files.CONTAINERFILE)
    assert set(options.split()) >= {"--system", "--user-group"}, options


def test_building_without_tools_says_how_to_get_them():
    argv = ["make", "-C", harness.ROOT, "CLANG=/usr/bin/no-such"]
    for target in ("all", "install", "lint"):
        done = subprocess.run([*argv, "-n", target], capture_output=True, text=True)
        assert done.returncode and "'make deps' installs" in done.stderr, done
    assert subprocess.run([*argv, "help"], capture_output=True).returncode == 0


def test_what_is_installed_profiles():
    """It finds its children where they were installed, and needs nothing of the tree."""
    output = harness.scratch_file(".pb.gz")
    program = os.path.join(installed(), "usr/bin/flamed")
    chain = harness.workload("chain_c")
    done = subprocess.run(
        [program, "record", "-d", "1", "-o", output, "--", chain],
        capture_output=True,
        text=True,
        cwd="/",
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert any("main" in s.names for s in harness.load_stacks(output)), done.stderr


# ---- containers ----


def test_the_daemonset_asks_for_exactly_what_flamed_needs():
    pod = files.daemonset()["spec"]["template"]["spec"]
    context = files.container()["securityContext"]
    want = {*files.capabilities(), "SETUID", "SETGID"}
    assert context["capabilities"]["drop"] == ["ALL"]
    assert set(context["capabilities"]["add"]) == want, context
    assert context["privileged"] is False and context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert pod["hostPID"] is True and not pod.get("hostNetwork")
    assert pod["automountServiceAccountToken"] is False
    assert "cpu" not in files.container()["resources"]["limits"]
    names = {volume["name"] for volume in pod["volumes"]}
    assert names == {mount["name"] for mount in files.container()["volumeMounts"]}
    for mount in files.container()["volumeMounts"]:
        assert mount.get("readOnly") or mount["mountPath"] == "/run/flamed", mount
    for volume in pod["volumes"]:
        assert not {"hostPath", "emptyDir", "secret"}.isdisjoint(volume), volume


#: What of a DaemonSet's pod is used: a key that is misspelled is no error for every API server.
POD_KEYS = (
    "serviceAccountName automountServiceAccountToken enableServiceLinks hostPID priorityClassName "
    "terminationGracePeriodSeconds nodeSelector tolerations containers volumes"
)
CONTAINER_KEYS = (
    "name image env ports securityContext startupProbe livenessProbe readinessProbe resources volumeMounts"
)
CONTEXT_KEYS = (
    "runAsUser runAsGroup privileged allowPrivilegeEscalation readOnlyRootFilesystem capabilities "
    "seccompProfile appArmorProfile"
)


def test_the_daemonset_runs_on_every_node_and_stays_there():
    spec = files.daemonset()["spec"]
    pod, container = spec["template"]["spec"], files.container()
    assert set(pod) == set(POD_KEYS.split()), set(pod) ^ set(POD_KEYS.split())
    assert set(container) == set(CONTAINER_KEYS.split()), set(container) ^ set(CONTAINER_KEYS.split())
    context = container["securityContext"]
    assert set(context) == set(CONTEXT_KEYS.split()), set(context) ^ set(CONTEXT_KEYS.split())
    assert spec["updateStrategy"]["type"] == "RollingUpdate"
    assert pod["tolerations"] == [{"operator": "Exists"}], "all nodes, also those with taints"
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    (priority,) = [d for d in files.documents() if d["kind"] == "PriorityClass"]
    # Source: what users may set; the system's own classes are above a billion.
    assert 0 < priority["value"] <= 10**9 and priority["preemptionPolicy"] == "Never"
    assert context["runAsUser"] == 0 and "runAsNonRoot" not in context
    # Both at once have to agree since Kubernetes 1.30.
    annotations = spec["template"]["metadata"]["annotations"]
    own = annotations[f"container.apparmor.security.beta.kubernetes.io/{container['name']}"]
    assert own == context["appArmorProfile"]["type"].lower() == "unconfined"
    assert annotations["prometheus.io/port"] == str(container["ports"][0]["containerPort"])
    assert pod["enableServiceLinks"] is False
    assert pod["terminationGracePeriodSeconds"] >= 10, "the last window is delivered within 5 s"
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["timeoutSeconds"] == 5, "a busy node is no dead pod"


def test_the_daemonset_mounts_what_the_code_opens():
    sources = {
        "/etc/machine-id": "agent/*.c",
        "/sys/fs/cgroup": None,  # by /proc/self/mountinfo
        "/run/flamed": "config/config.c",
        "/etc/flamed/secret": None,  # the settings of the DaemonSet itself
    }
    assert {m["mountPath"] for m in files.container()["volumeMounts"]} == set(sources)
    for path, source in sources.items():
        if source:
            texts = [read(name) for name in glob.glob(os.path.join(harness.ROOT, source))]
            assert any(f'"{path}"' in text for text in texts), (path, source)


def test_the_limits_of_memory_are_those_that_the_settings_warn_of():
    (words,) = re.findall(r"(\d+) MiB by default", read(os.path.join(harness.ROOT, "config/check_all.c")))
    (unit,) = re.findall(r"^MemoryMax=(.*)$", read(os.path.join(installed(), UNIT)), re.M)
    assert unit == f"{words}M" and files.container()["resources"]["limits"]["memory"] == f"{words}Mi"


def test_the_daemonset_refers_to_what_is_there():
    documents = files.documents()
    kinds = {d["kind"]: d for d in documents}
    assert len(kinds) == len(documents), "two of one kind"
    pod = files.daemonset()["spec"]["template"]["spec"]
    namespace = kinds["Namespace"]["metadata"]["name"]
    for kind in ("ServiceAccount", "Secret", "DaemonSet"):
        assert kinds[kind]["metadata"]["namespace"] == namespace
    assert pod["serviceAccountName"] == kinds["ServiceAccount"]["metadata"]["name"]
    assert pod["priorityClassName"] == kinds["PriorityClass"]["metadata"]["name"]
    (secret,) = [v["secret"] for v in pod["volumes"] if "secret" in v]
    assert secret["secretName"] == kinds["Secret"]["metadata"]["name"]
    selector = files.daemonset()["spec"]["selector"]["matchLabels"]
    labels = files.daemonset()["spec"]["template"]["metadata"]["labels"]
    assert selector.items() <= labels.items()
    (port,) = files.container()["ports"]
    probes = {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
    for probe, path in probes.items():
        get = files.container()[f"{probe}Probe"]["httpGet"]
        assert get == {"path": path, "port": port["name"]}, get
    assert files.environment("node")["FLAMED_METRICS_LISTEN"].endswith(f":{port['containerPort']}")


def test_the_variables_of_the_daemonset_are_settings():
    commented = dict(
        re.findall(r"# - name: (FLAMED_\w+)\n *#   value: (\S+)", read(files.DAEMONSET))
    )
    assert "FLAMED_ENDPOINT_PASSWORD_FILE" in commented
    variables = files.environment("node-1")
    variables.update({k: yaml.safe_load(v) for k, v in commented.items()})
    done = harness.flamed("--print-config", env={"PATH": "/usr/bin", **variables})
    assert done.returncode == 0, done.stderr
    assert "no setting" not in done.stderr, done.stderr
    settings = yaml.safe_load(done.stdout)
    assert settings["labels"]["hostname"] == "node-1"
    assert settings["endpoints"][0]["url"] == variables["FLAMED_ENDPOINT_URL"]
    path = settings["endpoints"][0]["basic_auth"]["password_file"]
    (mount,) = [m for m in files.container()["volumeMounts"] if m["name"] == "secret"]
    assert path.startswith(mount["mountPath"] + "/"), path


def test_the_container_has_the_libraries_that_the_programs_need():
    """Every library that a program names (not what those bring), by its Debian package."""
    packages = set(files.container_packages())
    needed = set()
    for name in ("flamed", "flamed-symbolizer", "flamed-exporter"):
        out = subprocess.run(
            ["readelf", "-d", os.path.join(harness.BIN, name)], capture_output=True, text=True
        ).stdout
        needed |= set(re.findall(r"\(NEEDED\).*\[(.*)\]", out))
    assert "libbpf.so.1" in needed, needed
    # One look-up for all: it reads every package's list of files.
    patterns = [f"*/{library}" for library in sorted(needed)]
    out = subprocess.run(["dpkg-query", "-S", *patterns], capture_output=True, text=True).stdout
    for library in needed:
        owners = set(re.findall(rf"^([^:\s]+)(?::\w+)?: .*/{re.escape(library)}$", out, re.M))
        assert owners & (packages | {"libc6"}), f"{library} is of {owners}, not in {packages}"
