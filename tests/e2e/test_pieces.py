"""Stacks that one window does not hold: giant frames, other stacks, coroutines. Complete after a thread's
first samples, marked before, and never with a frame that is wrong."""

import re
import struct

import harness
from harness import check_rate, once, total, with_user_stack, workload

RATE = 0.97
SECONDS = "1.5"
PROGRAM = ["_start", "__libc_start_main[^;]*", "[^;]+", "main"]
THREAD = ["[^;]+", "[^;]+", "thread_main"]
CLONE = ["(__)?clone", "clone_main"]
INTERRUPTED = ["interrupted", "syscall", "[^;]+", "handler"]
ENTERED = ["entered", "spin"]
BYTES_MAX = 32 * 1024


def recursion(kib, levels):
    return [f"hold_{kib}"] * levels


#: Frames, root first.
CASES = {
    **{f"frame_{kib}": PROGRAM + [f"hold_{kib}"] for kib in (4, 31, 63, 100, 300, 540)},
    "recursion_31": PROGRAM + recursion(31, 10),
    "recursion_100": PROGRAM + recursion(100, 6),
    "recursion_540": PROGRAM + recursion(540, 8),
    "frames_of_all_sizes": PROGRAM + recursion(540, 2) + ["inner_frames"] + recursion(300, 2),
    "never_touched": PROGRAM + recursion(100, 3),
    "dropped": PROGRAM + ["hold_dropped"],
    "thread_tls": THREAD + ["use_tls", "hold_540"],
    "thread_alloca": THREAD + ["allocate_1024"],
    "thread_recursion": THREAD + recursion(540, 8),
    "thread_at_the_end": THREAD,
    "clone_at_the_end": CLONE,
    "clone_recursion": CLONE + recursion(540, 8),
    "altstack": PROGRAM + INTERRUPTED,
    "altstack_deep": PROGRAM + recursion(300, 4) + INTERRUPTED,
    "segments_4": PROGRAM + ["segment", "on_stack"] * 4 + ["segment"],
    "segments_8": PROGRAM + ["segment", "on_stack"] * 8 + ["segment"],
}
COROUTINES = ["coroutines_of_main", "coroutines_of_thread"]
#: Of these what is not copied is followed by frame pointers.
WITH_FRAME_POINTERS = {
    "recursion_540": PROGRAM[3:] + recursion(540, 8),
    "thread_recursion": THREAD[2:] + recursion(540, 8),
    "recursion_far": PROGRAM[3:] + recursion(100, 48),
}
#: What is copied of these is not much more than they use.
SMALL = [*COROUTINES, "clone_at_the_end", "thread_at_the_end"]


class Run:
    def __init__(self):
        events = harness.scratch_file(".events")
        recording = harness.Recording("--events", events)
        commands = {name: ["pieces", name] for name in [*CASES, *COROUTINES]}
        commands["split_stack"] = ["split_stack"]
        for case in WITH_FRAME_POINTERS:
            commands[f"fp {case}"] = ["pieces_fp", case]
        argv = {name: [workload(c[0]), *c[1:], SECONDS] for name, c in commands.items()}
        self.ran = harness.run_each(argv)
        self.result = recording.finish()
        self.comms = {name: c[0] for name, c in commands.items()}
        self.bytes = bytes_of_samples(events)
        failed = {n: (ran.returncode, ran.stdout) for n, ran in self.ran.items() if ran.returncode}
        assert not failed, f"workloads failed: {failed}"

    def of(self, name):
        return with_user_stack(self.result.of(self.ran[name].pid, self.comms[name]))


@once
def run():
    return Run()


def bytes_of_samples(path):
    """{pid: user stack bytes of each of its samples}, from the event log (event_log.c, bpf/abi.h)."""
    sample_event, stack_section = 8, 3
    samples = {}
    with open(path, "rb") as f:
        data = f.read()
    at = 12
    while at + 13 <= len(data):
        length, kind, _ = struct.unpack_from("<IBQ", data, at)
        record = at + 13
        at += 4 + length
        if kind != sample_event:
            continue
        seq, pid, _, cpu = struct.unpack_from("<8xQ24xIII", data, record)
        nsections = struct.unpack_from("<H", data, record + 54)[0]
        section, copied = record + 72, 0
        for _ in range(nsections):
            what, _, size = struct.unpack_from("<HHI", data, section)
            copied += size if what == stack_section else 0
            section += 24 + (size + 7) // 8 * 8
        of_pid = samples.setdefault(pid, {})
        of_pid[cpu, seq] = of_pid.get((cpu, seq), 0) + copied
    return {pid: list(of_pid.values()) for pid, of_pid in samples.items()}


def is_suffix(stack, frames):
    """Cut off: what is there are the frames nearest the leaf."""
    return any(
        re.match(r"\[truncated\];" + ";".join(frames[i:]) + "(;|$)", stack.folded)
        for i in range(1, len(frames))
    )


def check_case(name):
    frames = CASES[name] + ENTERED
    whole = re.compile("^" + ";".join(frames) + "(;|$)")
    stacks = [s for s in run().of(name) if "entered" in s.names]
    wrong = [s for s in stacks if not (whole.match(s.folded) or is_suffix(s, frames))]
    assert not wrong, f"{name}: neither whole nor cut:{harness.worst(wrong)}"
    check_rate(name, stacks, lambda s: s.complete, RATE)


def make_test(name):
    def test():
        check_case(name)

    test.timeout = 600
    return test


for _name in CASES:
    globals()["test_" + _name] = make_test(_name)


def test_coroutines():
    for name in COROUTINES:
        stacks = [s for s in run().of(name) if "turn" in s.names]
        check_rate(name, stacks, lambda s: re.match("coroutine;turn(;|$)", s.folded), RATE)


def test_a_split_stack_is_whole_or_marked():
    stacks = [s for s in run().of("split_stack") if "spin" in s.names]
    frames = r"((split;){1,4}(__morestack;)?)+spin(;|$)"
    root = r"(\[truncated\];(__morestack;)?|" + ";".join(PROGRAM) + ";)"
    assert total(stacks) > 50
    wrong = [s for s in stacks if not re.match(root + frames, s.folded)]
    assert not wrong, f"{harness.worst(wrong)}"
    check_rate("split stack: many segments", stacks, lambda s: len(s.user) > 15, RATE)


def test_frame_pointers_go_on_where_the_copy_ends():
    for case, frames in WITH_FRAME_POINTERS.items():
        stacks = [s for s in run().of(f"fp {case}") if "entered" in s.names]
        cut = [s for s in stacks if not s.complete]
        assert cut, f"{case}: no stack is cut, which is what this is about"
        spliced = re.compile(r"^\[truncated\];([^;]+;)*" + ";".join(frames + ENTERED) + "(;|$)")
        # The second one comes before it is known that what was learned does not suffice.
        missed = total(s for s in cut if not spliced.match(s.folded))
        assert missed <= (total(cut) > 3) * 12, f"{case}: {missed} of {total(cut)}:{harness.worst(cut)}"


def test_stacks_whose_end_is_learned_are_copied_no_further():
    for name in SMALL:
        copied = run().bytes[run().ran[name].pid]
        mean = sum(copied) / len(copied)
        print(f"{name}: {mean:.0f} bytes a sample, at the end {copied[-1]}")
        assert mean <= BYTES_MAX, f"{name}: {mean:.0f} bytes a sample: {copied}"
        late = sorted(copied[len(copied) // 2 :])
        assert late[len(late) // 2] <= BYTES_MAX / 4, f"{name}: {copied}"


def test_nothing_was_lost():
    harness.check_no_loss(run().result)
