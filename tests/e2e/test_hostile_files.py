"""Programs whose ELF headers lie where the kernel does not look: each costs little, and nothing but its own names."""

import os
import re
import struct
import subprocess
import time

import harness

SYMBOLIZER = os.path.join(harness.BIN, "flamed-symbolizer")
SOURCE = f'#include "{os.path.join(harness.SOURCES, "workload.h")}"\n' + """
NOINLINE void busy(void) { work(); keep(1); }

int main(int argc, char **argv)
{
	uint64_t end = (uint64_t)(number_arg(argc, argv, 1, 1) * 1e9);

	while (cpu_ns() < end)
		busy();
}
"""
#: Of one file, in user and kernel mode, program start included; and resident.
CPU_MAX_S, RSS_MAX_KIB = 0.3, 50 * 1024

EHDR = {"e_shoff": (40, 8), "e_shentsize": (58, 2), "e_shnum": (60, 2), "e_shstrndx": (62, 2)}
SHDR = {
    "sh_name": (0, 4), "sh_type": (4, 4), "sh_flags": (8, 8), "sh_addr": (16, 8), "sh_offset": (24, 8),
    "sh_size": (32, 8), "sh_link": (40, 4), "sh_info": (44, 4), "sh_addralign": (48, 8), "sh_entsize": (56, 8),
}  # fmt: skip
SYM = {"st_name": (0, 4), "st_info": (4, 1), "st_shndx": (6, 2), "st_value": (8, 8), "st_size": (16, 8)}
RELA = {"r_offset": (0, 8), "r_info": (8, 8), "r_addend": (16, 8)}
NOTE = {"namesz": (0, 4), "descsz": (4, 4), "type": (8, 4)}
#: Names of program headers that no exec looks at.
PHDR = {"p_offset": (8, 8), "p_vaddr": (16, 8), "p_filesz": (32, 8), "p_memsz": (40, 8)}
SECTIONS = [
    ".symtab", ".strtab", ".dynsym", ".dynstr", ".shstrtab", ".rela.plt", ".rela.dyn", ".plt", ".plt.sec", ".text",
    ".eh_frame", ".eh_frame_hdr", ".debug_info", ".debug_abbrev", ".debug_line", ".debug_str", ".note.gnu.build-id",
]  # fmt: skip
VALUES = [0, 1, 7, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 63, (1 << 64) - 1]


class Image:
    def __init__(self, data):
        self.data = data
        shoff, shnum, shstrndx = self.u(40, 8), self.u(60, 2), self.u(62, 2)
        headers = [shoff + 64 * i for i in range(shnum)]
        names = self.u(headers[shstrndx] + 24, 8)
        self.sections = {}
        for at in headers:
            start = names + self.u(at, 4)
            self.sections[data[start : data.index(b"\0", start)].decode()] = at
        self.program = {self.u(32, 8) + 56 * i: self.u(self.u(32, 8) + 56 * i, 4) for i in range(self.u(56, 2))}

    def u(self, at, size):
        return int.from_bytes(self.data[at : at + size], "little")

    def place(self, section):
        """Offset and size in the file."""
        at = self.sections[section]
        return self.u(at + 24, 8), self.u(at + 32, 8)

    def changed(self, places, size, value):
        data = bytearray(self.data)
        for at in places:
            data[at : at + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
        return bytes(data)

    def harmed(self):
        """{what was done: the file's bytes}"""
        done = {}

        def harm(what, places, size, values=VALUES):
            for value in sorted({v & ((1 << 8 * size) - 1) for v in values}):
                done[f"{what}={value:#x}"] = self.changed(places, size, value)

        for name, (off, size) in EHDR.items():
            harm(name, [off], size, [*VALUES, len(self.data) - 1, len(self.data) - 64])
        for section in SECTIONS:
            if section in self.sections:
                for name, (off, size) in SHDR.items():
                    harm(f"{section} {name}", [self.sections[section] + off], size)
        for name, (off, size) in SHDR.items():
            harm(f"every {name}", [at + off for at in self.sections.values()], size)
        for section, fields, entry in [(".symtab", SYM, 24), (".dynsym", SYM, 24), (".rela.plt", RELA, 24)]:
            start, length = self.place(section)
            for name, (off, size) in fields.items():
                harm(f"{section} {name}", range(start + off, start + length - entry + 1 + off, entry), size)
        for name, (off, size) in NOTE.items():
            harm(f"note {name}", [self.place(".note.gnu.build-id")[0] + off], size)
        for at, kind in self.program.items():
            if kind in (4, 0x6474E550):  # PT_NOTE, PT_GNU_EH_FRAME
                for name, (off, size) in PHDR.items():
                    harm(f"phdr {kind:#x} {name}", [at + off], size)
        return done

    def harmed_dynamic(self):
        """What ld.so would not survive: for the symbolizer alone."""
        start, length = self.place(".dynamic")
        done = {}
        for value in VALUES:
            for name, off in [("d_tag", 0), ("d_val", 8)]:
                places = range(start + off, start + length, 16)
                done[f"{name}={value:#x}"] = self.changed(places, 8, value)
        for at, kind in self.program.items():
            if kind in (1, 2):  # PT_LOAD, PT_DYNAMIC
                for name, (off, size) in PHDR.items():
                    for value in VALUES:
                        done[f"phdr {kind} {name}={value:#x}"] = self.changed([at + off], size, value)
        return done


def build(*flags):
    path, text = harness.scratch_file(""), harness.scratch_file(".c")
    with open(text, "w", encoding="ascii") as f:
        f.write(SOURCE)
    subprocess.run(["/usr/bin/gcc", "-g", "-O1", "-rdynamic", "-o", path, text, *flags], check=True)
    return path


def write(path, data):
    with open(path, "wb") as f:
        f.write(data)
    os.chmod(path, 0o755)


def ask(path, *options, lines=""):
    """Status, CPU seconds and resident KiB of one question to the symbolizer."""
    argv = [SYMBOLIZER, "--file", path, "--dump", *options]
    questions = harness.scratch_file(".in")
    with open(questions, "w+", encoding="ascii") as f:
        f.write(lines)
        f.seek(0)
        process = subprocess.Popen(argv, stdin=f, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        said = process.stderr.read().decode(errors="backslashreplace")
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stderr.close()
    os.unlink(questions)
    return process.returncode, used.ru_utime + used.ru_stime, used.ru_maxrss, said


def check_cheap(what, path, size):
    offsets = "".join(f"{size * i // 64:#x}\n" for i in range(64))
    for options, lines in [(["symbols", "--at", "-"], offsets), (["rows", "--at", hex(size // 3)], ""), (["symbols"], "")]:
        status, cpu, rss, said = ask(path, *options, lines=lines)
        assert status in (0, 1), f"{what}, {options}: status {status}: {said}"
        assert (status == 0) == (not said), f"{what}, {options}: status {status}: {said}"
        assert cpu < CPU_MAX_S and rss < RSS_MAX_KIB, f"{what}, {options}: {cpu} s, {rss} KiB"


def test_each_field_that_lies_costs_little():
    with open(build(), "rb") as f:
        image = Image(f.read())
    path = harness.scratch_file("")
    cases = {**image.harmed(), **image.harmed_dynamic()}
    assert len(cases) > 500, len(cases)
    for what, data in cases.items():
        write(path, data)
        check_cheap(what, path, len(data))


test_each_field_that_lies_costs_little.timeout = 400


def test_running_programs_that_lie_leave_the_others_alone():
    program = build()
    with open(program, "rb") as f:
        image = Image(f.read())
    cases = {k: v for i, (k, v) in enumerate(sorted(image.harmed().items())) if i % 6 == 0}
    assert len(cases) > 80, len(cases)
    directory = harness.scratch_file(".d")
    os.mkdir(directory)
    for i, data in enumerate(cases.values()):
        write(os.path.join(directory, f"bad{i}"), data)
    script = f'for i in $(seq 0 {len(cases) - 1}); do "{directory}/bad$i" 0.05; done; "{program}" 0.5'
    result = harness.record("-F", "297", command=["/bin/sh", "-c", script])
    assert not result.summary.restarts, result.summary.restarts
    comms = {s.comm for s in result.stacks}
    assert len([c for c in comms if re.fullmatch(r"bad\d+", c or "")]) > 0.9 * len(cases), comms
    good = result.of(comm=os.path.basename(program))
    named = [s for s in good if s.names[-3:] == ["main", "busy", "work"]]
    assert harness.total(named) > 0.9 * harness.total(good) > 50, harness.worst(good)


def test_other_machines_programs_are_said_to_be_unsupported():
    with open(build(), "rb") as f:
        data = bytearray(f.read())
    path = harness.scratch_file("")
    for what, at, value in [("32 bits", 4, b"\1"), ("big endian", 5, b"\2"), ("AArch64", 18, struct.pack("<H", 183))]:
        write(path, data[:at] + value + data[at + len(value) :])
        status, _, _, said = ask(path, "symbols")
        assert status == 1 and "another machine or class" in said, f"{what}: {status}: {said}"


#: Functions of pushes and pops, all of one length, each of whose instructions has a row of its own.
FUNCTIONS, PUSHES = 200000, 7
ASSEMBLY = f"""
.text
.globl first
first:
.altmacro
.macro one n
.type generated_function_\\n, @function
generated_function_\\n:
.cfi_startproc
.rept {PUSHES}
push %rax
.cfi_adjust_cfa_offset 8
.endr
.rept {PUSHES}
pop %rax
.cfi_adjust_cfa_offset -8
.endr
ret
.cfi_endproc
.size generated_function_\\n, .-generated_function_\\n
.endm
.set i, 0
.rept {FUNCTIONS}
one %i
.set i, i + 1
.endr
.section .note.GNU-stack, "", @progbits
"""
DRIVER = f"""
#include "{os.path.join(harness.SOURCES, "workload.h")}"

extern char first[];

static NOINLINE void call_all(void)
{{
	for (uint32_t i = 0; i < {FUNCTIONS}; i++)
		((void (*)(void))(first + {2 * PUSHES + 1} * i))();
}}

int main(void)
{{
	while (cpu_ns() < 4000000000)
		call_all();
}}
"""


def peak_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return int(re.search(r"VmHWM:\s*(\d+) kB", f.read())[1])


def test_a_huge_program_costs_memory_by_what_is_seen_of_it():
    program, driver, assembly = (harness.scratch_file(suffix) for suffix in ("", ".c", ".s"))
    for path, text in [(driver, DRIVER), (assembly, ASSEMBLY)]:
        with open(path, "w", encoding="ascii") as f:
            f.write(text)
    subprocess.run(["/usr/bin/gcc", "-O1", "-o", program, driver, assembly], check=True)
    # 300 MB: the rest is a hole, which no section is in.
    os.truncate(program, 300 << 20)
    status, cpu, rss, said = ask(program, "symbols", "--at", "-", lines="".join(f"{i * 997:#x}\n" for i in range(4096)))
    assert status == 0 and not said, said
    assert cpu < CPU_MAX_S and rss < RSS_MAX_KIB, f"{cpu} s, {rss} KiB"
    recording = harness.Recording("-F", "997", command=[program])
    peaks = {}
    while not recording.ended():
        for pid, command in harness.children(recording.pid).items():
            if command.startswith("flamed-"):
                try:
                    peaks[command] = max(peaks.get(command, 0), peak_kib(pid))
                except (OSError, TypeError):
                    continue
        time.sleep(0.05)
    result = recording.finish(sig=None)
    assert any(c.startswith("flamed-symbolizer") for c in peaks) and max(peaks.values()) < RSS_MAX_KIB, peaks
    assert not result.summary.restarts, result.summary.restarts
    stacks = [s for s in result.of(comm=os.path.basename(program)) if s.names and s.names[-1] != "call_all"]
    named = [s for s in stacks if re.fullmatch(r"generated_function_\d+", s.names[-1])]
    assert len({s.names[-1] for s in named}) > 500, len(named)
    whole = [s for s in named if s.complete and s.names[-3:-1] == ["main", "call_all"]]
    assert harness.total(whole) > 0.95 * harness.total(named), harness.worst(named)
    assert harness.total(named) > 0.9 * harness.total(stacks), harness.worst(stacks)


test_a_huge_program_costs_memory_by_what_is_seen_of_it.timeout = 300
