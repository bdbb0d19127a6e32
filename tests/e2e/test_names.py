"""Names of functions end to end: how they are demangled, and wherever a linker put the code."""

import os
import re
import subprocess

import harness

HEADER = f'#include "{os.path.join(harness.SOURCES, "workload.h")}"\n'
CPP = (
    HEADER
    + """
struct shape {
	template <class T> NOINLINE void area(T, const char *) const { work(); keep(1); }
};

int main()
{
	shape s;
	auto half = [&](int i) NOINLINE { work(); keep((uint64_t)i); };

	while (cpu_ns() < 700000000) {
		s.area<long>(1, "");
		half(2);
	}
}
"""
)
STYLES = {
    "short": {"shape::area<long>", "main::{lambda(int)#1}::operator()"},
    "full": {"void shape::area<long>(long, char const*) const", "main::{lambda(int)#1}::operator()(int) const"},
    "none": {"_ZNK5shape4areaIlEEvT_PKc", "_ZZ4mainENKUliE_clEi"},
}

LIBRARY = HEADER + "NOINLINE void in_library(void) { work(); keep(1); }\n"
PROGRAM = (
    HEADER
    + """
extern void in_library(void);
NOINLINE void near_by(void) { work(); keep(1); }
__attribute__((section(".far"))) NOINLINE void far_off(void) { work(); keep(1); }

int main(void)
{
	while (cpu_ns() < 700000000) {
		in_library();
		near_by();
		far_off();
	}
}
"""
)
FAR = ["-no-pie", "-Wl,--section-start=.far=0x12345000"]
LAYOUTS = {
    "gcc": [],
    "lld": ["-fuse-ld=lld"],
    "lld, not PIE": ["-fuse-ld=lld", "-no-pie"],
    "gold": ["-fuse-ld=gold"],
    "all in one segment": ["-Wl,-z,noseparate-code"],
    "high": ["-no-pie", "-Wl,-Ttext-segment=0x7a000000"],
    "two segments of code": FAR,
    "two segments of code, stripped": [*FAR, "-s", "-rdynamic"],
}


def build(compiler, source, suffix, *flags):
    path, text = harness.scratch_file(""), harness.scratch_file(suffix)
    with open(text, "w", encoding="ascii") as f:
        f.write(source)
    subprocess.run([compiler, "-O1", "-o", path, text, *flags], check=True)
    return path


def leaves(program, *options, env=()):
    command = ["/usr/bin/env", *env, program]
    result = harness.record("-F", "297", *options, command=command)
    stacks = result.of(comm=os.path.basename(program))
    return {s.names[-1] for s in stacks if s.names}, stacks


def biases(program):
    """vaddr - offset of each executable segment."""
    text = subprocess.run(["/usr/bin/readelf", "-lW", program], stdout=subprocess.PIPE, text=True, check=True).stdout
    return [int(v, 16) - int(o, 16) for o, v in re.findall(r"LOAD +(\w+) (\w+) \w+ +\w+ +\w+ R E", text)]


def test_names_are_written_as_asked():
    program = build("/usr/bin/g++", CPP, ".cc")
    for style, expected in STYLES.items():
        names, _ = leaves(program, "--demangle", style)
        assert expected <= names, f"{style}: {expected - names} are not among {names}"
        other = set().union(*STYLES.values()) - expected
        assert not other & names, f"{style}: {other & names}"


def test_the_settings_say_how_names_are_written():
    program = build("/usr/bin/g++", CPP, ".cc")
    settings = harness.scratch_file(".yaml")
    with open(settings, "w", encoding="ascii") as f:
        f.write("symbols: {demangle: full}\n")
    os.chmod(settings, 0o644)
    names, _ = leaves(program, "--config", settings)
    assert STYLES["full"] <= names, names
    names, _ = leaves(program, "--config", settings, "--demangle", "none")
    assert STYLES["none"] <= names, names


def test_an_unknown_style_is_refused():
    result = harness.flamed("record", "--demangle", "pretty", "--", "/bin/true")
    assert result.returncode == 64, result
    assert "--demangle is short, full or none: 'pretty'" in result.stderr, result.stderr


def test_code_has_its_names_wherever_it_was_linked_to():
    library = build("/usr/bin/gcc", LIBRARY, ".c", "-shared", "-fPIC", "-Wl,-Ttext=0xad000")
    assert [bias for bias in biases(library) if bias == 0xAB000], biases(library)
    seen = set()
    for layout, flags in LAYOUTS.items():
        program = build("/usr/bin/gcc", PROGRAM, ".c", library, *flags)
        seen.update(biases(program))
        names, stacks = leaves(program)
        assert {"in_library", "near_by", "far_off"} <= names, f"{layout}: {names}"
        wrong = [s.names for s in stacks if s.names[-1] in ("near_by", "far_off") and "main" not in s.names]
        assert len(wrong) <= 0.02 * len(stacks), f"{layout}: {wrong[:5]}"
    assert len(seen) >= 5, f"the layouts are too much alike: {seen}"
