"""Stacks that are seldom: a recording of the whole host while a workload of each kind runs."""

import os
import re
import subprocess

import harness
from harness import (
    check_chain,
    check_complete,
    check_rate,
    need_program,
    once,
    scratch_file,
    total,
    with_user_stack,
    workload,
)

RATE = 0.995
#: Where a stack begins: a C program's main thread, a thread of glibc, anywhere else.
PROGRAM = r"_start;__libc_start_main[^;]*;[^;]+;main"
THREAD = r"[^;]+;[^;]+;thread_main"
SECONDS = "0.7"
#: The signal can come inside of what is inlined into the loop.
INTERRUPTED = "interrupted(;keep)?"
BIND_NOT = ["/usr/bin/env", "LD_BIND_NOT=1"]


class Case:
    """A program and its chain: `leaf < ... < outermost`, regular expressions, above `root`."""

    def __init__(self, program, chain, root=PROGRAM, via=(), comm=None, sees=None):
        self.name, *self.args = program.split()
        frames = ";".join(reversed(chain.split(" < ")))
        self.pattern = f"^{root}{';' if root else ''}{frames}(;|$)"
        self.via, self.sees = via, sees  # some of its stacks have the leaf `sees`
        self.comm = comm or self.name[:15]

    def command(self):
        return [*self.via, workload(self.name), *self.args, SECONDS]


def odd_row(name, leaf=""):
    return Case(f"odd_rows {name}", f"{leaf}{name} < on_rbx < on_rbp < run")


CASES = {
    # Rows that compilers seldom make.
    "the CFA in memory below rsp": odd_row("cfa_below_rsp"),
    "the return address below rsp": odd_row("ra_below_rsp"),
    "the return address in a register": odd_row("ra_in_register"),
    "the CFA at an index": odd_row("cfa_indexed"),
    "the return address moved": odd_row("ra_moved", "spin < "),
    "the return address above the CFA": odd_row("ra_above_cfa", "spin < "),
    "registers saved far away": odd_row("saved_far", "spin < "),
    "registers saved at an expression": odd_row("saved_at_expression", "spin < "),
    "registers saved in registers": odd_row("saved_in_registers", "spin < "),
    "an expression with jumps": odd_row("cfa_by_jumps", "spin < "),
    "a realigned stack": Case("realign", "spin < aligned < inner < aligned < outer"),
    "a call that is its function's end": Case("noreturn", "never_returns < ends_with_call"),
    # Procedure linkage tables: a stub is called as the function that it calls.
    "lazy .plt": Case("plt_lazy", "call", sees=r"labs@plt"),
    ".plt.sec": Case("plt_sec", "call", sees=r"labs@plt"),
    ".plt.got": Case("plt_got", "call", sees=r"labs@plt"),
    "lld's .plt": Case("plt_lld", "call", sees=r"labs@plt"),
    "each call through .plt's first entry": Case("plt_lazy", "call", via=BIND_NOT),
    "each call through lld's first entry": Case("plt_lld", "call", via=BIND_NOT),
    # Where CFI is, and where a program begins.
    ".debug_frame beside .eh_frame": Case("chain_debug_frame", "spin < c < b < a"),
    ".debug_frame alone": Case("no_start_debug", "spin < a", "_start"),
    "own _start": Case("no_start_cfi", "spin < a", "_start"),
    "static PIE": Case("chain_static_pie", "spin < c < b < a"),
    "the loader as a program": Case(
        "chain_pie", "spin < c < b < a", via=["/lib64/ld-linux-x86-64.so.2"], comm="ld-linux-x86-64"
    ),
    # Signals.
    "glibc's trampoline": Case("own_sigreturn glibc", f"spin < handler < [^;]+ < {INTERRUPTED}"),
    "a trampoline without CFI": Case(
        "own_sigreturn no_cfi", f"spin < handler < no_cfi_restorer < {INTERRUPTED}"
    ),
    "a trampoline with wrong CFI": Case(
        "own_sigreturn wrong_cfi", f"spin < handler < wrong_cfi_restorer < {INTERRUPTED}"
    ),
    "8 180 frames": Case("deep 8180", "spin < (deep;){8179}deep"),
    # Other stacks than main's.
    "a raw clone": Case("odd_roots raw_clone", "spin < entered < clone_main < (__)?clone", ""),
    "a thread on 16 KiB": Case("odd_roots small_stack", "spin < entered", THREAD),
    "a thread whose leader is gone": Case("odd_roots leader_exit", "spin < entered", THREAD),
    "makecontext": Case("odd_roots ucontext", "spin < entered", ""),
    "a fiber of Boost.Context": Case("odd_roots fiber", "spin < entered < fiber_entry", ""),
    "a page of code with frame pointers": Case(
        "jit_page", r"spin < \[jit\]\+0x\w+ < called_back < \[jit\]\+0x\w+ < run"
    ),
}

#: These have no complete chain, or more than one.
OTHERS = {
    "deep 9000": ["deep", "9000", SECONDS],
    "deep 100000": ["deep", "100000", SECONDS],
    "spin32": ["spin32"],
    "chain_no_cfi": ["chain_no_cfi", SECONDS],
    "zero_frames": ["zero_frames", SECONDS],
    "plugin_host": ["plugin_host", "1"],
    "exec_over": ["exec_over_one", "60"],
}

#: Thousands of processes and threads a second, of which the kernel may lose some records.
STORMS = {
    "vfork_loop": ["vfork_loop", "1"],
    "signals, glibc": ["own_sigreturn", "glibc", "1", "signals"],
    "signals, no_cfi": ["own_sigreturn", "no_cfi", "1", "signals"],
    "signals, wrong_cfi": ["own_sigreturn", "wrong_cfi", "1", "signals"],
    "short_threads": ["short_threads", "1"],
}


class Run:
    def __init__(self, commands):
        recording = harness.Recording()
        self.ran = harness.run_each(commands)
        self.result = recording.finish()
        failed = {n: (ran.returncode, ran.stdout) for n, ran in self.ran.items() if ran.returncode}
        assert not failed, f"workloads failed: {failed}"

    def of(self, name, comm):
        return self.result.of(self.ran[name].pid, comm)


@once
def run():
    commands = {name: case.command() for name, case in CASES.items()}
    commands.update({name: [workload(argv[0]), *argv[1:]] for name, argv in OTHERS.items()})
    return Run(commands)


@once
def storms():
    return Run({name: [workload(argv[0]), *argv[1:]] for name, argv in STORMS.items()})


def is_loading(stack):
    """The loader before the program begins, which can take a while."""
    return stack.complete and stack.modules and os.path.basename(stack.modules[0]).startswith("ld-linux")


def check_case(name):
    case = CASES[name]
    stacks = [s for s in run().of(name, case.comm) if not is_loading(s)]
    check_chain(name, stacks, case.pattern, RATE)
    if case.sees:
        seen = total(s for s in stacks if re.search(f";call;{case.sees}(;|$)", s.folded))
        assert seen, f"{name}: no sample in the stub; the commonest:{harness.worst(stacks)}"


def make_test(name):
    def test():
        check_case(name)

    test.timeout = 600
    return test


for _name in CASES:
    globals()["test_" + re.sub(r"\W+", "_", _name).strip("_")] = make_test(_name)


def check_marked(name, comm, pattern):
    stacks = with_user_stack(run().of(name, comm))
    check_rate(name, stacks, lambda s: not s.complete and re.search(pattern, s.folded), RATE)


def test_past_8192_frames_the_stack_is_marked():
    check_marked("deep 9000", "deep", r"^\[unwind: too deep\];(deep;){8191}spin(;|$)")


def test_an_endless_stack_is_marked():
    check_marked("deep 100000", "deep", r"^\[(unwind: too deep|truncated)\];(deep;){5000}")


def test_a_32_bit_program_is_a_leaf_that_is_marked():
    check_marked("spin32", "spin32", r"^\[unwind: 32-bit\];spin32\+0x\w+(;|$)")


def test_without_cfi_no_frame_is_wrong():
    check_marked("chain_no_cfi", "chain_no_cfi", r"^\[unwind: no CFI\];spin(;|$)")


def check_roots(what, stacks):
    """Of a program without CFI: whole down to its entry point, or marked."""
    check_rate(what, stacks, lambda s: s.names[0] == "_start" if s.complete else s.outcome, rate=1)


def test_zeros_at_a_frame_pointer_that_is_none_are_no_root():
    stacks = [s for s in with_user_stack(run().of("zero_frames", "zero_frames")) if "spin" in s.names]
    check_roots("zeros", stacks)


def test_signals_without_cfi_have_no_false_root():
    """All of a static program of musl is without CFI; so is what ends its handlers."""
    musl, program = need_program("/usr/bin/musl-gcc"), scratch_file("")
    flags = "-static -O2 -fno-asynchronous-unwind-tables -I".split()
    source = os.path.join(harness.SOURCES, "own_sigreturn.c")
    subprocess.run([musl, *flags, harness.SOURCES, "-o", program, source], check=True)
    stacks = with_user_stack(harness.record(command=[program, "glibc", "1", "signals"]).stacks)
    stacks = [s for s in stacks if s.comm == os.path.basename(program)]
    assert any("__restore_rt" in s.names for s in stacks), "no signal was seen"
    check_roots("musl", stacks)


def test_vfork_has_its_caller_also_inside_the_system_call():
    stacks = storms().result.of(comm="vfork_loop")
    check_complete("vfork", stacks, RATE)
    inside = [s for s in stacks if re.search(";(__)?vfork(;|$)", s.folded)]
    check_chain("in vfork", inside, f"^{PROGRAM};spawn;(__)?vfork(;|$)", RATE, at_least=20)
    assert any("__do_sys_vfork" in s.names for s in inside), "no sample inside the system call"


def test_threads_that_end_at_once_have_their_roots():
    stacks = storms().of("short_threads", "short_threads")
    check_complete("short threads", stacks, RATE)
    cloning = [s for s in stacks if "__do_sys_clone3" in s.names]
    check_chain("in clone3", cloning, f"^{PROGRAM};make_thread;(__)?pthread_create[^;]*;", RATE, at_least=10)


def test_inside_rt_sigreturn_the_stack_is_still_the_handlers():
    for name in STORMS:
        if not name.startswith("signals"):
            continue
        stacks = storms().of(name, "own_sigreturn")
        check_complete(name, stacks, RATE)
        check_chain(name, [s for s in stacks if "signals" in s.names], f"^{PROGRAM};signals(;|$)", RATE)
        # Of the system call's first half; in the second the registers are back.
        inside = f"^{PROGRAM};signals;[^;]+;[^;]+;entry_SYSCALL_64_after_hwframe;.*rt_sigreturn(;|$)"
        assert any(re.search(inside, s.folded) for s in stacks), f"{name}: none inside:{harness.worst(stacks)}"


def test_libraries_that_come_and_go_leave_no_wrong_frame():
    stacks = run().of("plugin_host", "plugin_host")
    check_complete("plugin host", stacks, RATE)
    spinning = [s for s in stacks if "spin" in s.names]
    chains = f"^({PROGRAM};host;plugin_(one|two)|{THREAD});spin(;|$)"
    check_chain("plugin host", spinning, chains, RATE)
    assert any("dlopen" in n for s in stacks for n in s.names), "no sample inside the loader"


def test_programs_at_the_same_addresses_keep_their_own_frames():
    for comm, chain in (("exec_over_one", "begin;spin"), ("exec_over_two", "begin;middle;spin")):
        stacks = run().of("exec_over", comm)
        check_complete(comm, stacks, RATE)
        begun = [s for s in stacks if "begin" in s.names]
        check_chain(comm, begun, f"^{PROGRAM};{chain}(;|$)", RATE)


def test_wild_stack_pointers_cost_no_more_than_others_and_name_nobody():
    recording = harness.Recording()
    ran = harness.run_each({"wild": [workload("wild_stacks"), "2"]})["wild"]
    result = recording.finish()
    assert ran.returncode == 0, ran.stdout
    stacks = [s for s in result.of(ran.pid) if "wild" in s.names]
    assert total(stacks) > 100, harness.worst(stacks)
    # What such a stack holds can be a return address by chance; a call of it cannot be wild's.
    known = {"wild", "main", "_start"}
    named = [s for s in stacks if set(s.user[: s.user.index("wild")]) - known and s.complete]
    assert total(named) <= 0.05 * total(stacks), harness.worst(named)
    assert result.summary.copied < 128 * 1024 and not result.summary.restarts, result.summary.text


def test_nothing_was_lost():
    harness.check_no_loss(run().result)
