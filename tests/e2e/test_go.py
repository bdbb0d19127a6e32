"""Go programs of Debian's toolchain, stripped ones too: chains, names, files and lines."""

import os
import re
import subprocess

import harness
import pprof
from harness import (
    check_chain,
    check_complete,
    need_program,
    once,
    total,
    with_user_stack,
    workload,
)

MAIN = r"^runtime\.goexit(\.abi0)?;runtime\.main;main\.main"
GOROUTINE = r"^runtime\.goexit(\.abi0)?"
SPIN = r"main\.a;main\.b;main\.c;main\.spin(;|$)"
CALLS_C = r"main\._Cfunc_c_a(\.abi0)?;runtime\.cgocall;runtime\.asmcgocall(\.abi0)?;"
CGO = f"{MAIN};{CALLS_C}"
CALLBACK = (
    r"crosscall2;runtime\.cgocallback(\.abi0)?;runtime\.cgocallbackg(\.abi0)?;(runtime\.\w+;)*_cgoexp_\w+"
)
DEEP = rf"{MAIN};({CALLS_C}c_a;c_b;goDeep;{CALLBACK};main\.goDeep;){{2}}{CALLS_C}c_a;c_b;"
SECONDS = "1"
SPIN_CHAIN = rf"({MAIN}|{GOROUTINE};main\.main\.func1;main\.worker);{SPIN}"
CALLERS = r";runtime\.Callers;runtime\.callers;runtime\.systemstack;runtime\.callers\.func1"


class Case:
    """A program, its chain from the root on, and which of its stacks must have it."""

    def __init__(self, program, chain, having):
        self.name, *self.args = program.split()
        self.chain, self.having = chain, having

    def command(self):
        return [workload(self.name), *self.args, SECONDS]


CASES = {
    "stripped": Case("go_stripped", SPIN_CHAIN, "spin"),
    "PIE of the system's linker": Case("go_pie", SPIN_CHAIN, "spin"),
    "the system stack": Case(
        "go_paths callers", rf"{MAIN};main\.callers{CALLERS}", r"runtime\.callers\.func1"
    ),
    "assembly": Case(
        "go_paths hash", rf"{MAIN};main\.hash;.*;crypto/sha256\.block", r"sha256\.block"
    ),
    "growing stacks": Case(
        "go_paths grow",
        rf"({MAIN};main\.grow|{GOROUTINE};main\.grow\.func1)(;|$)",
        r"main\.grow",
    ),
    "C called by Go": Case("go_cgo in_c", rf"{CGO}c_a;c_b;c_spin(;|$)", "c_spin"),
    "C called by stripped Go": Case(
        "go_cgo_stripped in_c", rf"{CGO}(go_cgo_stripped\+0x\w+(;|$)){{3}}", r"\+0x"
    ),
}
CALLBACKS = {
    "Go called by C": Case(
        "go_cgo in_callback",
        rf"{CGO}c_a;c_b;goSpin;{CALLBACK};main\.goSpin;main\.spin",
        r"main\.spin",
    ),
    "a library in a C program": Case(
        "go_host",
        rf"{harness.START}outer;inner;GoSpin;{CALLBACK};main\.GoSpin;main\.spin",
        r"main\.spin",
    ),
    "C called by Go called by C": Case("go_cgo deep_in_c", rf"{DEEP}c_spin(;|$)", "c_spin"),
    "Go called by C, twice more": Case(
        "go_cgo deep_in_callback",
        rf"{DEEP}goSpin;{CALLBACK};main\.goSpin;main\.spin",
        r"main\.spin",
    ),
    "the vDSO": Case(
        "go_paths clock", rf"{MAIN};main\.clock;time\.Now;time\.now", r"clock_gettime"
    ),
}


class Run:
    def __init__(self):
        cases = CASES | CALLBACKS
        recording = harness.Recording()
        self.ran = harness.run_each({name: case.command() for name, case in cases.items()})
        self.result = recording.finish()
        failed = {n: (ran.returncode, ran.stdout) for n, ran in self.ran.items() if ran.returncode}
        assert not failed, f"workloads failed: {failed}"

    def of(self, name, case):
        stacks = self.result.of(self.ran[name].pid, case.name[:15])
        return with_user_stack(stacks), [s for s in stacks if re.search(case.having, s.folded)]


@once
def run():
    need_program("/usr/bin/go")
    return Run()


def test_go_stacks_are_complete_and_have_their_chains():
    for name, case in CASES.items():
        stacks, chained = run().of(name, case)
        check_complete(name, stacks)
        check_chain(name, chained, case.chain, rate=0.995, at_least=20)


def test_stacks_that_cross_to_another_stack_are_whole():
    for name, case in CALLBACKS.items():
        _, chained = run().of(name, case)
        check_chain(name, chained, case.chain, rate=0.995, at_least=20)


def test_the_first_samples_of_a_program_are_whole():
    """Runs of a few samples each, when nothing is known of the program."""
    need_program("/usr/bin/go")
    recording = harness.Recording()
    commands = {
        (name, i): [*case.command()[:-1], "0.05"] for name, case in CALLBACKS.items() for i in range(20)
    }
    ran = harness.run_each(commands)
    result = recording.finish()
    for name, case in CALLBACKS.items():
        pids = {r.pid for key, r in ran.items() if key[0] == name}
        stacks = [s for s in result.stacks if s.pid in pids and re.search(case.having, s.folded)]
        check_chain(name, stacks, case.chain, rate=0.995, at_least=20)


def test_lines_of_stripped_go_are_those_of_its_source():
    """Lines that only main.spin has, and its callers' calls."""
    with open(os.path.join(harness.SOURCES, "go/spin.go"), encoding="utf-8") as f:
        source = f.read().split("\n")
    expected = {
        "main.spin": re.compile(r"sink \+=|for "),
        "main.c": re.compile(r"spin\(end\)"),
        "main.b": re.compile(r"\tc\(end\)"),
        "main.a": re.compile(r"\tb\(end\)"),
    }
    seen, wrong = set(), []
    pid = run().ran["stripped"].pid
    profile = pprof.load(run().result.path)
    locations = {location.id: location for location in profile.location}
    functions = {function.id: function for function in profile.function}
    for sample in profile.sample:
        if profile.labels_of(sample).get("pid") != pid:
            continue
        for line in (line for id in sample.location_id for line in locations[id].line):
            function = functions[line.function_id]
            name, file = profile.string(function.name), profile.string(function.filename)
            if name not in expected:
                continue
            seen.add(name)
            text = source[line.line - 1] if 0 < line.line <= len(source) else ""
            if not file.endswith("/tests/workloads/go/spin.go") or not expected[name].search(text):
                wrong.append((name, file, line.line))
    assert seen == set(expected) and not wrong, f"seen {seen}, wrong {wrong}"


def test_go_build_is_complete():
    """The toolchain is stripped."""
    go = need_program("/usr/bin/go")
    output, source = harness.scratch_file(""), harness.scratch_file(".go")
    with open(source, "w", encoding="ascii") as f:
        f.write("package main\n")
        f.writelines(f"func f{i}(n int) int {{ return n * {i} }}\n" for i in range(10000))
        f.write('func main() { println("f1", f1(2)) }\n')
    settings = [
        "HOME=" + harness.scratch(),
        "GOCACHE=" + os.path.join(os.path.dirname(os.path.abspath(harness.WORKLOADS)), "gocache"),
        *"GO111MODULE=off GOPROXY=off GOFLAGS= CGO_ENABLED=0".split(),
    ]
    build = ["/usr/bin/env", "-u", "GOROOT", *settings, go, "build", "-o", output, source]
    result = harness.record(command=build, seconds=300)
    assert not result.returncode, result.stderr
    tools = ("go", "compile", "link", "asm")
    stacks = [s for s in with_user_stack(result.stacks) if s.comm in tools]
    check_complete("go build", stacks)
    unnamed = [s for s in stacks if any(n.startswith(f"{s.comm}+0x") for n in s.names)]
    assert total(unnamed) < 0.01 * total(stacks), harness.worst(unnamed)


#: What the runtime's assembly does with the stack, as objdump writes it.
MOVES = re.compile(
    r"(?P<push>push )|(?P<pop>pop )|sub +\$(?P<grown>0x\w+),%rsp|add +\$(?P<shrunk>0x\w+),%rsp"
    r"|(?P<frame>mov +%rsp,%rbp|lea +0x\w+\(%rsp\),%rbp)|(?P<unframe>mov +0x\w+\(%rsp\),%rbp)"
    r"|(?P<keep>mov +%rsp,%rdx)|(?P<switch>mov +(0x\w+\(%\w+\)|%\w+),%rsp)|(?P<align>and +\$0xf+0,%rsp)"
)


def output(argv):
    return subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True).stdout


def after(code, depth, framed):
    """How far the CFA is above sp behind an instruction, and whether there is a frame."""
    move = MOVES.match(code)
    if not move:
        return depth, framed
    depth += 8 * bool(move["push"]) - 8 * bool(move["pop"])
    depth += int(move["grown"] or "0", 16) - int(move["shrunk"] or "0", 16)
    if move["frame"]:
        return depth, True
    return depth, framed and not move["unframe"] and not (move["pop"] and "%rbp" in code)


def places(program, function):
    """Each instruction's offset in the file, whether it runs on another stack, and what the CFA can be."""
    disassemble = ["/usr/bin/objdump", "-d", "--no-show-raw-insn", f"--disassemble={function}"]
    text = output([*disassemble, program])
    load = re.search(r"LOAD +(0x\w+) (0x\w+) 0x\w+ 0x\w+ 0x\w+ R E", output(["/usr/bin/readelf", "-lW", program]))
    bias = int(load[2], 16) - int(load[1], 16)
    depth, framed, away, kept, jumps = 8, False, False, None, {}
    for address, code in re.findall(r"^ +(\w+):\t(.*)$", text, re.M):
        at = int(address, 16)
        depth, framed, away = jumps.get(at, (depth, framed, away))
        if not code.startswith("int"):
            yield at - bias, away, {f"rsp+{depth}", "rbp+16" if framed else "", f"rdx+{kept}"}
        move, jump = MOVES.match(code), re.match(r"j\w+ +(\w+)", code)
        if jump:
            jumps.setdefault(int(jump[1], 16), (depth, framed, away))
        if move and move["keep"]:
            kept = depth
        if move and (move["switch"] or move["align"]):
            # What is aligned is the other stack already, or is left for it.
            depth, away = (depth, True) if move["align"] else (kept or depth, not away)
        elif not away:
            depth, framed = after(code, depth, framed)


def test_each_instruction_that_switches_stacks_has_its_row():
    program, wrong, seen = workload("go_cgo"), [], 0
    for function in ["systemstack", "asmcgocall", "cgocallback"]:
        for offset, away, right in places(program, f"runtime.{function}.abi0"):
            text = output([os.path.join(harness.BIN, "flamed-symbolizer"), "--file", program, "--dump", "rows", "--at", hex(offset)])
            rows = re.findall(r"^(\w+)-(\w+) cfa=(\S+)", text, re.M)
            cfa = [c for start, end, c in rows if int(start, 16) <= offset < int(end, 16)]
            seen += away
            if not cfa or (cfa[0].startswith("rsp") if away else cfa[0] not in right):
                wrong.append(f"{function} {offset:#x}: {cfa}, not one of {right}")
    assert seen > 20, "no instruction on another stack was seen"
    assert not wrong, "\n".join(wrong)
