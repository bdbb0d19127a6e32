"""What flamed says where it cannot work: one line, what it is and what to do, the same for each command."""

import functools
import os
import re
import shlex
import subprocess

import harness
from daemon import Daemon
from harness import need_program

SIX = ("bpf", "perfmon", "syslog", "sys_ptrace", "dac_read_search", "checkpoint_restore")
UNAVAILABLE = 69
#: bpf(2)'s BPF_PROG_LOAD, and the flags with which flamed opens perf events.
PROG_LOAD, EVENT_FLAGS = 5, 8


# ---- ways to be confined: each returns the words before the command ----


def plain_user(caps=SIX):
    """Nobody, with capabilities as a service manager gives them."""
    listed = ",".join(["-all", *(f"+{c}" for c in caps)])
    user = [f"--reuid={harness.NOBODY}", f"--regid={harness.NOBODY}", "--clear-groups"]
    return [need_program("/usr/bin/setpriv"), *user, f"--inh-caps={listed}", f"--ambient-caps={listed}"]


def root_without(*caps):
    listed = ",".join(f"-{c}" for c in caps)
    return [need_program("/usr/bin/setpriv"), f"--bounding-set={listed}", f"--inh-caps={listed}"]


def refuse(call, error):
    return [harness.workload("refuse"), call, error]


def mounted(script):
    """In a mount namespace of its own, where `script` changed something."""
    return [need_program("/usr/bin/unshare"), "--mount", "/bin/sh", "-ec", f'{script}; exec "$@"', "sh"]


def hidden(path):
    return mounted(f"mount -t tmpfs none {path}")


def file_that_says(path, text):
    """The file `path`, in a directory or over a file that there is."""
    quoted = shlex.quote(text)
    if os.path.exists(path):
        return mounted(
            f"mount -t tmpfs none /mnt; echo {quoted} > /mnt/it; chmod 444 /mnt/it; mount --bind /mnt/it {path}"
        )
    return mounted(f"mount -t tmpfs none {os.path.dirname(path)}; echo {quoted} > {path}")


def limited(limit, value):
    return ["/bin/sh", "-c", f'ulimit {limit} {value}; exec "$@"', "sh"]


# ---- the three commands ----


@functools.cache
def flamed():
    """A copy that every user may run."""
    _, directory, _ = harness.for_everyone(None)
    return os.path.join(directory, "flamed")


def run(argv, **kwargs):
    return subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100, cwd="/", **kwargs
    )


def features(wrap):
    return run([*wrap, flamed(), "features"])


def verdict(done):
    """The last line of `flamed features`, which an empty one stands before."""
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["FEATURE", "HERE", "SINCE", "WITHOUT", "IT"], done
    assert lines[-2] == "", done
    return lines[-1]


def check_refused(wrap, pattern, and_daemon=False):
    done = features(wrap)
    assert done.returncode == UNAVAILABLE, done
    said = verdict(done)
    assert re.fullmatch(f"flamed cannot run here: {pattern}", said), said
    reason = said.removeprefix("flamed cannot run here: ")

    done = run([*wrap, flamed(), "record", "-d", "1", "-o", "-"])
    assert done.returncode == 1, done
    errors = [line for line in done.stderr.splitlines() if "warning" not in line]
    assert errors == [f"flamed: {reason}"], done.stderr
    if and_daemon:
        d = Daemon(wrap=wrap, ready=False)
        harness.wait_for(d.ended, "the daemon to end")
        assert d.process.returncode == 1, d.process.returncode
        assert d.lines()[-1:] == [f"flamed: {reason}"], d.stderr()


def check_runs(wrap):
    done = features(wrap)
    assert done.returncode == 0, done
    assert verdict(done) == "flamed can run here", done.stdout
    return done


# ---- where it can run ----


def test_features_says_what_there_is_in_columns():
    done = check_runs([])
    assert done.stderr == "", done.stderr
    rows = [re.split(r" {2,}", line) for line in done.stdout.splitlines()[1:-2]]
    names = [row[0] for row in rows]
    assert len(set(names)) == len(names) >= 20, names
    for row in rows:
        assert len(row) == 4 and re.fullmatch(r"[a-z0-9_]+", row[0]), row
        assert row[1] in ("yes", "no") and re.fullmatch(r"\d+\.\d+(\.\d+)?", row[2]), row
        assert row[1] == "yes" or "refuses to start" not in row[3], row
    assert {"bpf_ring_buffer", "bpf_task_pt_regs", "btf"} <= set(names), names


def test_the_minimal_capabilities_suffice_and_sys_resource_is_not_missed():
    done = check_runs(plain_user())
    assert done.stderr == "", done.stderr


def test_a_missing_right_of_the_reader_is_a_warning():
    for cap in ("sys_ptrace", "dac_read_search", "checkpoint_restore"):
        done = check_runs(plain_user([c for c in SIX if c != cap]))
        assert f"missing=cap_{cap}" in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


def test_where_bpf_memory_is_charged_to_the_cgroup_a_small_memlock_is_no_matter():
    lines = features([]).stdout.splitlines()
    if not any(re.match(r"bpf_memcg_accounting +yes", line) for line in lines):
        raise harness.Skip("this kernel counts BPF memory as locked memory")
    check_runs([*limited("-l", 64), *plain_user()])


# ---- where it cannot ----


def test_each_missing_capability_is_named():
    for cap in ("bpf", "perfmon", "syslog"):
        rest = [c for c in SIX if c != cap]
        check_refused(plain_user(rest), rf"missing cap_{cap}: run as root, or .*setcap .*\+ep\)")
        check_refused(
            root_without(cap), rf"missing cap_{cap}: this root was not given it; .*container or service.*", True
        )
    check_refused(plain_user([]), r"missing cap_syslog,cap_perfmon,cap_bpf: run as root, .*")


def test_without_rights_features_says_which_probes_it_could_not_make():
    done = features(plain_user([]))
    assert re.search(r"^bpf_ring_buffer +\? ", done.stdout, re.M), done.stdout
    assert re.search(r"^btf +yes ", done.stdout, re.M), done.stdout


def test_a_seccomp_filter_is_named_with_the_call_that_it_refuses():
    for call in ("bpf", "perf_event_open"):
        for error in ("EPERM", "ENOSYS"):
            check_refused(refuse(call, error), rf"a seccomp filter refuses {call}\(2\): .*seccomp=unconfined.*", True)
    check_refused([*plain_user(), *refuse(f"bpf:{PROG_LOAD}", "EPERM")], r"a seccomp filter refuses bpf\(2\): .*")


test_a_seccomp_filter_is_named_with_the_call_that_it_refuses.timeout = 300


def test_a_user_namespace_is_named():
    wrap = [need_program("/usr/bin/unshare"), "--user", "--map-root-user"]
    if run([*wrap, "/bin/true"]).returncode:
        raise harness.Skip("user namespaces are not allowed here")
    check_refused(wrap, r"this is a user namespace of its own, .*: run flamed as root of the host .*", True)


def test_what_is_hidden_is_named():
    check_refused(hidden("/sys/kernel/btf"), r"no type information .*/sys/kernel/btf/vmlinux.*BTF=y.*", True)
    check_refused(hidden("/sys"), r".*flamed needs it, read-only will do.*")
    check_refused(hidden("/proc"), r"cannot look at /proc/self/exe: .*; is /proc mounted .*")


def test_a_kernel_that_lacks_something_is_told_what_and_since_when():
    lacking = refuse(f"bpf:{PROG_LOAD}", "EINVAL")
    check_refused(
        [*file_that_says("/sys/kernel/security/lockdown", "[none] integrity confidentiality"), *lacking],
        r"this kernel lacks bpf_perf_program, which came with Linux 4\.9: flamed needs Linux 5\.10 or newer.*",
    )


def test_a_lockdown_for_confidentiality_is_named():
    lockdown = file_that_says("/sys/kernel/security/lockdown", "none integrity [confidentiality]")
    check_refused(
        [*lockdown, *refuse(f"bpf:{PROG_LOAD}", "EINVAL")], r"the kernel is locked down for confidentiality, .*", True
    )


def test_perf_event_paranoid_above_2_is_named_with_both_ways_out():
    for value in (3, 4):
        paranoid = file_that_says("/proc/sys/kernel/perf_event_paranoid", str(value))
        check_refused(
            [*paranoid, *plain_user(), *refuse(f"perf_event_open:{EVENT_FLAGS}", "EACCES")],
            rf"kernel\.perf_event_paranoid is {value}: .*sysctl kernel\.perf_event_paranoid=2, or add CAP_SYS_ADMIN",
        )


test_perf_event_paranoid_above_2_is_named_with_both_ways_out.timeout = 300


def test_whoever_else_refuses_is_called_a_security_module():
    check_refused(
        [*plain_user(), *refuse(f"perf_event_open:{EVENT_FLAGS}", "EACCES")],
        r"a security module .* refuses perf_event_open\(2\): .*",
    )


def test_too_few_open_files_are_said_with_the_number_needed():
    check_refused(limited("-n", 64), r"the limit of open files is too low: .* limit=64 needed=\d+", True)
