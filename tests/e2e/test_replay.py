"""Recorded events, replayed, give the same profile, byte for byte."""

import os
import stat

import harness
from harness import flamed, once, record, shell_workload


class Run:
    def __init__(self):
        self.log = harness.scratch_file(".events")
        script = (
            f"{shell_workload('chain_c')} 0.5; {shell_workload('chain_cpp')} 0.5; "
            f"{shell_workload('spawner')} 50 {shell_workload('short5')}"
        )
        self.recorded = record("--events", self.log, command=["/bin/sh", "-c", script])
        assert self.recorded.returncode == 0, self.recorded.stderr


@once
def run():
    return Run()


def replay(log):
    output = harness.scratch_file(".pb.gz")
    return flamed("replay", log, "-o", output, seconds=60), output


def read(path):
    with open(path, "rb") as f:
        return f.read()


def damaged(change):
    data = bytearray(read(run().log))
    change(data)
    path = harness.scratch_file(".events")
    with open(path, "wb") as f:
        f.write(data)
    return path


def check_refused(log):
    done, _ = replay(log)
    assert 0 < done.returncode < 126, f"status {done.returncode}: {done.stderr}"
    assert os.path.basename(log) in done.stderr, f"the file is not named: {done.stderr}"
    assert len(done.stderr.splitlines()) <= 3, done.stderr


def test_a_replay_gives_the_identical_profile():
    done, output = replay(run().log)
    assert done.returncode == 0, done.stderr
    assert read(output) == read(run().recorded.path)


def test_a_second_replay_gives_the_identical_profile():
    first, second = replay(run().log)[1], replay(run().log)[1]
    assert read(first) == read(second)


def test_a_replay_tells_the_same_numbers():
    done, _ = replay(run().log)
    again, recorded = harness.Summary(done.stderr), run().recorded.summary
    assert (again.samples, again.seen, again.stacks, again.drops) == (
        recorded.samples,
        recorded.seen,
        recorded.stacks,
        recorded.drops,
    )


def test_a_replay_needs_no_rights():
    """Whoever may read the log may replay it."""
    log, directory, output = harness.for_everyone(run().log)
    done = harness.as_nobody([os.path.join(directory, "flamed"), "replay", log, "-o", output])
    assert done.returncode == 0, done.stderr
    assert read(output) == read(run().recorded.path)


def test_the_log_is_only_for_its_owner():
    assert stat.S_IMODE(os.stat(run().log).st_mode) == 0o600


def test_a_file_that_is_no_log_is_refused():
    for content in (b"", b"x", b"no log of events\n" * 1000):
        path = harness.scratch_file(".events")
        with open(path, "wb") as f:
            f.write(content)
        check_refused(path)


def test_a_log_that_is_not_there_is_refused():
    check_refused(os.path.join(harness.scratch(), "missing.events"))


def test_a_log_with_another_beginning_is_refused():
    check_refused(damaged(lambda data: data.__setitem__(0, data[0] ^ 0xFF)))


def test_a_damaged_log_is_refused():
    """From the middle on all bits are set: lengths there cannot be right."""
    check_refused(
        damaged(
            lambda data: data.__setitem__(
                slice(len(data) // 2, None), b"\xff" * (len(data) - len(data) // 2)
            )
        )
    )


def test_a_truncated_log_is_said_to_be_truncated():
    """What a killed recording leaves: all before the cut counts, if it is used at all."""
    log = damaged(lambda data: data.__delitem__(slice(len(data) * 3 // 4 + 1, None)))
    done, _ = replay(log)
    assert (
        "truncated" in done.stderr or "ends early" in done.stderr or "cut" in done.stderr
    ), done.stderr
