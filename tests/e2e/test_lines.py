"""Functions, files, lines and inlined callers, at each instruction of a program, as other tools read them."""

import os
import re
import subprocess

import harness
import pprof
from harness import need_program

SOURCE = os.path.join(harness.SOURCES, "lines")
SYMBOLIZER = os.path.join(harness.BIN, "flamed-symbolizer")
#: Of the start files, which have no debug information: eu-addr2line takes the last line before them.
START_FILES = {
    "_start", "_init", "_fini", "frame_dummy", "register_tm_clones", "deregister_tm_clones",
    "__do_global_dtors_aux", "_dl_relocate_static_pie",
}  # fmt: skip
SECTIONS = ["-ffunction-sections", "-Wl,--gc-sections"]


def output(argv, **kwargs):
    return subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True, errors="replace", **kwargs).stdout


def build(*command):
    path = harness.scratch_file("")
    sources = [os.path.join(SOURCE, "program.cc"), os.path.join(SOURCE, "second.S")]
    output([*command, "-Wl,--undefined=assembly", "-o", path, *sources], cwd=SOURCE)
    return path


def in_file(program, addresses):
    """Each address and its offset in the file."""
    loads = re.findall(r"LOAD +(0x\w+) (0x\w+) 0x\w+ (0x\w+) 0x\w+ R E", output(["/usr/bin/readelf", "-lW", program]))
    loads = [tuple(int(x, 16) for x in load) for load in loads]
    for address in addresses:
        yield address, next(address - v + off for off, v, size in loads if v <= address < v + size)


def instructions(program):
    """Where the instructions of the program's own functions are: address, offset in the file."""
    own = []
    for line in output(["/usr/bin/nm", "-S", program]).split("\n"):
        found = re.fullmatch(r"(\w+) (\w+) [tTwWuV] (.*)", line)
        if found and found[3] not in START_FILES:
            own.append((int(found[1], 16), int(found[1], 16) + int(found[2], 16)))
    code = output(["/usr/bin/objdump", "-d", "--no-show-raw-insn", program])
    addresses = [int(text, 16) for text in re.findall(r"^ +(\w+):\t", code, re.M)]
    return in_file(program, [a for a in addresses if any(start <= a < end for start, end in own)])


def ours(program, offsets):
    text = output(
        [SYMBOLIZER, "--file", program, "--dump", "symbols", "--at", "-"], input="".join(f"{o:#x}\n" for o in offsets)
    )
    found = []
    for line in text.split("\n")[:-1]:
        if line.startswith("build_id="):
            found.append([])
            continue
        frame = re.fullmatch(r"(.*?)(?: (/[^()]*):(\d+))?(?: start_line=\d+)?", line)
        # The readable name, and as it is in the file: without blanks, or the same.
        names = re.fullmatch(r"(.*) \(\1\)|.* \((\S+)\)", frame[1])
        found[-1].append((names[1] or names[2], frame[2] or "??", int(frame[3] or 0)))
    return found


def by_elfutils(program, addresses):
    lines = output(
        [need_program("/usr/bin/eu-addr2line"), "-a", "-i", "-f", "-e", program],
        input="".join(f"{a:#x}\n" for a in addresses),
    ).split("\n")
    found, at = [], 0
    while at + 1 < len(lines):
        if re.fullmatch(r"0x[0-9a-f]{16}", lines[at]):
            found.append([])
            at += 1
            continue
        place = re.match(r"(.*?):(\d+)", lines[at + 1])
        found[-1].append((lines[at].split(" inlined at ")[0], place[1], int(place[2])))
        at += 2
    return found


def by_llvm(program, addresses):
    text = output(
        [need_program("/usr/bin/llvm-symbolizer"), "-e", program, "--no-demangle", "--inlining", "--functions=linkage"],
        input="".join(f"{a:#x}\n" for a in addresses),
    )
    found = []
    for block in text.strip().split("\n\n"):
        lines = block.split("\n")
        places = [re.fullmatch(r"(.*):(\d+):\d+", line) for line in lines[1::2]]
        found.append([(name, p[1] or "??", int(p[2])) for name, p in zip(lines[::2], places)])
    return found


def normal(frames):
    """Paths without what leads nowhere; complete and base object constructors and destructors, which share code, alike."""
    same = [(re.sub(r"([CD])[12](E[^E]*)$", r"\1x\2", name), file, line) for name, file, line in frames]
    same = [(re.sub(r"\.(cold|part\.\d+|constprop\.\d+|isra\.\d+).*", "", name), file, line) for name, file, line in same]
    return [(name, os.path.normpath(file) if line else "", line) for name, file, line in same]


def but_outermost(frames):
    """Of functions without a mangled name in the debug information llvm-symbolizer takes the symbol's."""
    return normal([*frames[:-1], ("", *frames[-1][1:])]) if frames else frames


def compare(program, *oracles, at_least=500):
    """Each address must be as the first oracle has it; where that one errs, as the next has it."""
    places = list(instructions(program))
    assert len(places) > at_least, f"only {len(places)} instructions"
    left = list(zip(places, ours(program, [offset for _, offset in places]), strict=True))
    mine = [frames for _, frames in left]
    for oracle, same in oracles:
        if not left:
            break
        theirs = oracle(program, [address for (address, _), _ in left])
        assert len(theirs) == len(left), (len(theirs), len(left))
        told = [(place, x, y) for (place, x), y in zip(left, theirs) if same(x) != same(y)]
        # eu-addr2line is wrong at some places where a part of an inlined function is one instruction.
        assert len(told) <= 0.01 * len(places), f"{len(told)} of {len(places)}:\n" + describe(told)
        left = [(place, x) for place, x, _ in told]
    assert not left, f"{len(left)} of {len(places)}:\n" + describe(told)
    return mine


def describe(told):
    return "\n".join(f"{address:#x}:\n  ours   {x}\n  theirs {y}" for (address, _), x, y in told[:5])


def check_gcc(*flags):
    mine = compare(build("/usr/bin/g++", "-g", *flags), (by_elfutils, normal), (by_llvm, but_outermost))
    assert any(frame[0] == "assembly" and frame[1].endswith("/second.S") for frames in mine for frame in frames)
    return mine


def check_clang(*flags):
    return compare(build("/usr/bin/clang++", "-g", *flags), (by_llvm, normal))


def test_gcc_dwarf_5():
    mine = check_gcc("-O2", "-gdwarf-5")
    assert max(len(frames) for frames in mine) >= 4, "hardly anything is inlined"
    assert any([f[0] for f in frames] == ["squared", "cubed", "plain"] for frames in mine), "cubed is not inlined"


def test_gcc_dwarf_4():
    check_gcc("-O2", "-gdwarf-4")


def test_gcc_without_optimization():
    check_gcc("-O0")


def test_functions_that_the_linker_dropped_name_nothing():
    mine = check_gcc("-O2", *SECTIONS)
    assert not any("dropped" in frame[0] for frames in mine for frame in frames)
    mine = check_clang("-O2", "-fuse-ld=lld", *SECTIONS)
    assert not any("dropped" in frame[0] for frames in mine for frame in frames)


def test_compressed_by_zlib():
    check_gcc("-O2", "-gz=zlib")


def test_compressed_before_there_was_a_flag_for_it():
    check_gcc("-O2", "-gz=zlib-gnu")


def test_compressed_by_zstd():
    plain = build("/usr/bin/g++", "-g", "-O2")
    packed = harness.scratch_file("")
    try:
        output(["/usr/bin/objcopy", "--compress-debug-sections=zstd", plain, packed], stderr=subprocess.DEVNULL)
    except subprocess.CalledProcessError as error:
        raise harness.Skip("this objcopy does not know zstd") from error
    offsets = [offset for _, offset in instructions(plain)]
    assert "ZSTD" in output(["/usr/bin/readelf", "-tW", packed])
    assert ours(packed, offsets) == ours(plain, offsets)


def test_clang_dwarf_5():
    check_clang("-O2", "-gdwarf-5")


def test_clang_dwarf_4():
    check_clang("-O2", "-gdwarf-4")


def test_of_one_unit_for_all():
    compare(build("/usr/bin/g++", "-g", "-O2", "-flto"), (by_llvm, but_outermost))


def test_only_lines_and_inlined_callers():
    compare(build("/usr/bin/clang++", "-O2", "-gline-tables-only"), (by_llvm, but_outermost))


def test_entries_of_linkage_tables_are_called_as_what_they_call():
    for name in ["plt_lazy", "plt_sec", "plt_got", "plt_lld"]:
        program, expected, entry = harness.workload(name), {}, None
        for line in output(["/usr/bin/objdump", "-d", "--no-show-raw-insn", program]).split("\n"):
            begin, code = re.match(r"\w+ <(.*)>:", line), re.match(r" +(\w+):\t", line)
            entry = begin[1] if begin else entry
            if code and entry.endswith("@plt"):
                expected[int(code[1], 16)] = entry
        places = list(in_file(program, expected))
        told = ours(program, [offset for _, offset in places])
        wrong = [(hex(a), expected[a], x) for (a, _), x in zip(places, told) if [f[0] for f in x] != [expected[a]]]
        assert len(places) > 15 and not wrong, f"{name}: {len(places)} instructions, wrong: {wrong}"


def lines_of(profile, location):
    functions = {function.id: function for function in profile.function}
    for line in location.line:
        function = functions[line.function_id]
        yield profile.string(function.name), profile.string(function.filename), line.line, function.start_line


def test_a_profile_has_inlined_callers_as_lines_of_one_location():
    source = os.path.join(SOURCE, "spin.c")
    with open(source, encoding="utf-8") as f:
        text = ["", *f.read().split("\n")]

    def where(pattern):
        return next(i for i, line in enumerate(text) if re.search(pattern, line))

    for compiler in ["/usr/bin/gcc", "/usr/bin/clang"]:
        program = harness.scratch_file("")
        output([compiler, "-O2", "-g", "-o", program, source])
        recording = harness.Recording()
        ran = harness.run_each({"spin": [program]})["spin"]
        profile = pprof.load(recording.finish().path)
        locations = {location.id: location for location in profile.location}
        expected = [
            ("inner", where("inner's work"), where("void inner")),
            ("middle", where("middle's call"), where("void middle")),
            ("outer", where("outer's call"), where("void outer")),
        ]
        seen = []
        for sample in profile.sample:
            if profile.labels_of(sample).get("pid") != ran.pid:
                continue
            for lines in ([*lines_of(profile, locations[i])] for i in sample.location_id):
                if lines[0][0] == "inner":
                    seen.append([(name, line, start) for name, _, line, start in lines])
                    assert all(file == source for _, file, _, _ in lines), lines
                if lines[0][0] == "main":
                    assert lines[0][2] == where("main's call"), lines
        # The loop's own instructions may be of its head.
        assert expected in seen, seen[:3]
        assert all([x[0] for x in lines] == ["inner", "middle", "outer"] and lines[1:] == expected[1:] for lines in seen)
