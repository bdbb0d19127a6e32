"""The command line: what is refused, how it ends, what it says."""

import os
import re
import signal
import stat
import subprocess
import time

import harness
from harness import (
    Recording,
    check_chain,
    flamed,
    record,
    shell_workload,
    start,
    total,
    wait_for,
    workload,
)

BUSY = ["chain_c", "1000"]


def check_refused(done, *words):
    """Fails with a status of its own, and with one line that says why."""
    assert 0 < done.returncode < 126, f"status {done.returncode}: {done.stderr}"
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert lines, "nothing on stderr"
    for word in words:
        assert re.search(word, done.stderr, re.I), f"no /{word}/ in: {done.stderr}"
    assert "Assertion" not in done.stderr and "Sanitizer" not in done.stderr, done.stderr


def test_help_goes_to_stdout_and_names_the_commands():
    done = flamed("--help")
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert "record" in done.stdout and "replay" in done.stdout, done.stdout
    assert flamed("record", "--help").returncode == 0


def test_version_goes_to_stdout():
    done = flamed("--version")
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert re.match(r"flamed \d+\.\d+\.\d+", done.stdout), done.stdout
    assert len(done.stdout.splitlines()) == 1


def test_children_have_help_and_version_too():
    for name in ("flamed-symbolizer", "flamed-exporter"):
        path = os.path.join(harness.BIN, name)
        for option in ("--help", "--version"):
            done = subprocess.run([path, option], capture_output=True, text=True, timeout=10)
            assert done.returncode == 0 and done.stdout, f"{name} {option}: {done}"


def test_an_unknown_command_is_refused():
    check_refused(flamed("recrod"), "recrod")


def test_an_unknown_option_is_refused():
    check_refused(flamed("record", "--frobnicate"), "frobnicate")


def test_a_missing_argument_is_refused():
    check_refused(flamed("record", "-d"))


def test_a_bad_frequency_is_refused():
    for text in ("0", "-1", "abc", "100x", "1e9", "99999999999999999999", ""):
        check_refused(flamed("record", "-d", "1", "-o", harness.scratch_file(".gz"), "-F", text))


def test_a_bad_duration_is_refused():
    for text in ("0", "-1", "abc", "1y", "99999999999999999999", ""):
        check_refused(flamed("record", "-d", text, "-o", harness.scratch_file(".gz")))


def test_a_bad_pid_is_refused():
    for text in ("0", "-1", "abc", "99999999999"):
        check_refused(flamed("record", "-d", "1", "-o", harness.scratch_file(".gz"), "-p", text))


def test_a_process_that_does_not_exist_is_refused():
    with open("/proc/sys/kernel/pid_max", encoding="ascii") as f:
        pid = int(f.read()) - 1
    if os.path.exists(f"/proc/{pid}"):
        raise harness.Skip(f"pid {pid} is in use")
    check_refused(
        flamed("record", "-d", "1", "-o", harness.scratch_file(".gz"), "-p", pid), str(pid)
    )


def test_an_output_that_cannot_be_written_is_refused_at_once():
    begin = time.monotonic()
    path = os.path.join(harness.scratch(), "missing", "x.gz")
    check_refused(flamed("record", "-d", "60", "-o", path), "missing/x.gz")
    assert time.monotonic() - begin < 10, "it should not profile first"


def test_an_output_that_runs_full_is_an_error():
    if not os.path.exists("/dev/full"):
        raise harness.Skip("no /dev/full")
    done = flamed("record", "-d", "1", "-o", "/dev/full")
    check_refused(done, "No space left|ENOSPC")


def test_a_user_without_rights_is_told_what_is_missing():
    _, directory, output = harness.for_everyone(None)
    done = harness.as_nobody([os.path.join(directory, "flamed"), "record", "-d", "1", "-o", output])
    check_refused(done, "cap_bpf", "root")
    assert len(done.stderr.splitlines()) <= 2, done.stderr


def end_by(signo):
    recording = Recording()
    ran = harness.run_each({"c": [workload("chain_c"), "1"]})["c"]
    result = recording.finish(sig=signo)
    assert result.returncode == 0, f"status {result.returncode}: {result.stderr}"
    check_chain("chain_c", result.of(ran.pid, "chain_c"), harness.START + "a;b;c;spin(;|$)")


def test_ctrl_c_ends_it_cleanly_with_what_was_counted():
    end_by(signal.SIGINT)


def test_sigterm_ends_it_cleanly_with_what_was_counted():
    end_by(signal.SIGTERM)


def test_nothing_is_left_behind_when_the_agent_is_killed():
    recording = Recording()
    children = wait_for(
        lambda: len(harness.children(recording.pid)) >= 3 and harness.children(recording.pid),
        "three children",
    )
    recording.process.kill()
    recording.process.wait()
    for pid in children:
        wait_for(
            lambda pid=pid: not os.path.exists(f"/proc/{pid}") or is_zombie(pid),
            f"child {pid} to be gone",
        )


def is_zombie(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def test_a_duration_ends_it():
    begin = time.monotonic()
    result = record("-d", "1")
    assert result.returncode == 0, result.stderr
    assert 1 <= time.monotonic() - begin < 10


def test_the_commands_exit_status_is_passed_on():
    for status in (0, 7, 125):
        assert record(command=["/bin/sh", "-c", f"exit {status}"]).returncode == status


def test_a_command_killed_by_a_signal_gives_128_and_its_number():
    assert record(command=["/bin/sh", "-c", "kill -TERM $$"]).returncode == 128 + signal.SIGTERM


def test_a_command_that_is_not_there_gives_127():
    result = record(command=["/nonexistent/program"], laws=False)
    assert result.returncode == 127, result.returncode
    assert "/nonexistent/program" in result.stderr, result.stderr


def test_a_command_that_cannot_be_executed_gives_126():
    path = harness.scratch_file(".txt")
    with open(path, "w", encoding="ascii") as f:
        f.write("no program\n")
    result = record(command=[path], laws=False)
    assert result.returncode == 126, result.returncode


def test_a_command_keeps_its_user_its_output_and_its_directory():
    result = record(
        command=[
            "/bin/sh",
            "-c",
            "id -u; pwd; echo to stderr >&2; umask; ls -l /proc/self/fd | wc -l",
        ]
    )
    uid, cwd, umask, nfds = result.stdout.splitlines()
    assert int(uid) == os.getuid() and cwd == os.getcwd(), result.stdout
    assert int(umask, 8) == current_umask(), result.stdout
    assert int(nfds) == 5, f"descriptors leaked into the command: {result.stdout}"
    assert "to stderr" in result.stderr


def current_umask():
    value = os.umask(0)
    os.umask(value)
    return value


def test_a_command_is_recorded_with_its_children_and_nothing_else():
    other = start([workload("chain_nopie"), "1000"])
    script = f"{shell_workload('chain_c')} 1; {shell_workload('chain_pie')} 1 & wait"
    result = record(command=["/bin/sh", "-c", script])
    comms = {s.comm for s in result.stacks}
    assert {"chain_c", "chain_pie"} <= comms, comms
    assert other.pid not in {s.pid for s in result.stacks}
    assert comms <= {"chain_c", "chain_pie", "sh", "flamed"}, comms


def test_a_command_is_not_profiled_before_its_exec():
    result = record(command=[workload("chain_c"), "0.5"])
    before = total(s for s in result.stacks if s.comm != "chain_c")
    assert before == 0, harness.worst([s for s in result.stacks if s.comm != "chain_c"])


def test_processes_are_recorded_with_their_later_children():
    """The target is a shell; its first child is there at the start, its second comes later."""
    go = harness.scratch_file(".go")
    script = (
        f"{shell_workload('chain_c')} 1000 & until test -e {go}; do sleep 0.05; done; "
        f"{shell_workload('chain_pie')} 1"
    )
    target = start(["/bin/sh", "-c", script])
    other = start([workload("chain_nopie"), "1000"])
    wait_for(
        lambda: any("chain_c" in c for c in harness.children(target.pid).values()),
        "the first child",
    )
    recording = Recording("-p", target.pid)
    with open(go, "w", encoding="ascii"):
        pass
    wait_for(
        lambda: os.waitid(os.P_PID, target.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT),
        "the target to end",
    )
    result = recording.finish()
    comms = {s.comm for s in result.stacks}
    assert "chain_pie" in comms and "chain_c" in comms, comms
    assert other.pid not in {s.pid for s in result.stacks}


def test_two_pids_are_both_recorded():
    pids = [start([workload(BUSY[0]), BUSY[1]]).pid for _ in range(2)]
    result = record("-d", "2", "-p", pids[0], "-p", pids[1])
    assert {s.pid for s in result.stacks} == set(pids)


def test_the_frequency_is_kept():
    process = start([workload(BUSY[0]), BUSY[1]])
    result = record("-d", "2", "-F", "499", "-p", process.pid)
    seconds = harness.cpu_ns(result.stacks) / 1e9
    rate = result.summary.samples / seconds
    assert abs(rate / 499 - 1) < 0.03, f"{rate:.0f} samples per CPU second"


def test_the_bytes_that_were_copied_are_told():
    few = record(command=[workload("chain_c"), "1"]).summary
    many = record(command=[workload("stack_kib"), "48", "1"]).summary
    assert 128 < few.copied < 4096, few.text
    assert 47 * 1024 < many.copied < 64 * 1024, many.text


def test_what_is_not_a_terminal_sees_no_progress_and_no_colours():
    result = record("-d", "1")
    assert "\r" not in result.stderr and "\x1b" not in result.stderr, repr(result.stderr)


def test_names_of_hostile_programs_reach_neither_the_terminal_nor_the_profile_raw():
    script = (
        "import time\nopen('/proc/self/comm','wb').write(b'\\x1b[2J\\xff\\n\\x07x')\n"
        "end=time.process_time()+1\nwhile time.process_time()<end: pass\n"
    )
    result = record(command=["/usr/bin/python3", "-c", script])  # the validator checks UTF-8
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", result.stderr), repr(result.stderr)
    assert total(s for s in result.stacks if s.comm != "python3") > 50, {
        s.comm for s in result.stacks
    }


def test_a_profile_goes_into_a_pipe():
    process = start(
        [harness.FLAMED, "record", "-d", "1", "-o", "/dev/stdout"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    data = process.stdout.read()
    assert process.wait() == 0
    path = harness.scratch_file(".pb.gz")
    with open(path, "wb") as f:
        f.write(data)
    assert not harness.pprof.validate(path)


def test_the_output_replaces_an_older_file_whole():
    path = harness.scratch_file(".pb.gz")
    with open(path, "wb") as f:
        f.write(b"x" * 1000000)
    record("-d", "1", output=path)  # valid, so nothing of the old content is left
    assert stat.S_IMODE(os.stat(path).st_mode) & 0o022 == 0


def test_a_command_that_ignores_sigterm_does_not_keep_the_recording():
    done = subprocess.run(
        [harness.FLAMED, "record", "-d", "1", "-o", harness.scratch_file(".pb.gz"), "--", "/bin/sh", "-c",
         'trap "" TERM; while :; do sleep 1; done'],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "wrote " in done.stderr, done.stderr


def test_too_low_a_limit_of_open_files_is_one_clear_line():
    done = subprocess.run(
        ["/bin/sh", "-c", 'ulimit -n 64; exec "$0" record -d 1 -o "$1"', harness.FLAMED,
         harness.scratch_file(".pb.gz")],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1, done.returncode
    assert "limit of open files is too low" in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
