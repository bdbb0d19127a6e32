"""table - what the boots showed, as text and as docs/kernels.md."""

import re

import checks
import harness

HEAD = """# Kernels

Written by `make kernels`: Debian's own kernels, booted in an emulator with flamed and programs of known call
chains (`tests/kernels/`). `make check` boots 5.10 and 6.1. An emulator is slow and uneven: times are only to be compared with each
other, and the cost of the BPF program is told as a multiple of that of a program which only reads the clock.
"""

COLUMNS = """
- *loads*: until it samples, from when the kernel began to verify the first program; *verified*: instructions, which kernels before 5.16 do not tell.
- *samples*, *lost*: of `flamed record` while the programs ran. *complete*, *named*: of the programs' own stacks and
  frames; most frames without a name are inside libc and the dynamic loader, whose symbols are not installed.
- *BPF cost*: the kernel's own account of a run, in runs of the empty program.
- *boot*: from the emulator's start to its end, two at a time.
"""


def programs_of(boot):
    """Stacks of the programs of known chains: the guest's own busybox is a file without unwind information."""
    names = ("chain_c", "chain_cpp", "threads4", "syscall_loop", "brief", "layered")
    return [s for s in boot.record.stacks if s.comm in names]


def named_percent(boot):
    named = frames = 0
    for s in programs_of(boot):
        bare = sum("+0x" in name or "(no name)" in name for name in s.names)
        frames += s.count * len(s.names)
        named += s.count * (len(s.names) - bare)
    return 100 * named / max(frames, 1)


def cost(programs):
    runs = {name: p["run_ns"] / p["runs"] for name, p in programs.items() if p["runs"]}
    ours = [n for name, n in runs.items() if name != "empty"]
    # The first to run is the one on the tick: what it calls runs in its time.
    return max(ours) / runs["empty"] if ours and "empty" in runs else None


def verified(boot):
    counts = [p["verified"] for name, p in boot.programs("start").items() if name != "empty"]
    return f"{sum(counts):,}".replace(",", " ") if any(counts) else "-"


def loads(boot):
    began = min(p["loaded_ms"] for p in boot.programs("start").values())
    return f"{(boot.number('ready_ms') - began) / 1000:.1f} s"


def row(name, boot):
    """Cells of one kernel; `boot` may be the exception that there is instead."""
    if isinstance(boot, Exception):
        return [name, "-", str(boot).splitlines()[0][:60], *[""] * 6]
    release, seconds = boot.facts.get("release", "?"), f"{boot.seconds:.0f} s"
    if boot.refusal:
        return [name, release, "refused", *[""] * 5, seconds]
    if not boot.text("record.err"):
        return [name, release, "failed", *[""] * 5, seconds]
    summary = boot.record.summary
    stacks = harness.with_user_stack(programs_of(boot))
    whole = harness.total(s for s in stacks if s.complete)
    ratio = cost(boot.programs("end"))
    return [
        name, release, loads(boot), verified(boot), str(summary.samples),
        f"{100 * whole / max(harness.total(stacks), 1):.1f} %", str(summary.lost()), f"{named_percent(boot):.0f} %",
        f"{ratio:.1f}" if ratio else "-", seconds,
    ]  # fmt: skip


TITLES = ["kernel", "release", "loads", "verified", "samples", "complete", "lost", "named", "BPF cost", "boot"]


def lay_out(rows):
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(r, widths)).rstrip() for r in rows)


def markdown(rows):
    lines = ["| " + " | ".join(r) + " |" for r in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return "\n".join(lines) + "\n"


def rows_of(boots):
    return [TITLES] + [(row(name, b) + [""] * len(TITLES))[: len(TITLES)] for name, b in boots.items()]


def outcome_rows(boots):
    booted = {name: b for name, b in boots.items() if not isinstance(b, Exception) and not b.refusal}
    outcomes = sorted({o for b in booted.values() for o in b.record.summary.stacks})
    rows = [["outcome", *booted]]
    rows += [[o, *(str(b.record.summary.stacks.get(o, 0)) for b in booted.values())] for o in outcomes]
    return rows


def feature_rows(boots):
    booted = {name: dict((x[0], x) for x in b.features) for name, b in boots.items() if not isinstance(b, Exception)}
    names = {}
    for features in booted.values():
        names.update({name: x[2] for name, x in features.items()})
    rows = [["feature", "since", *booted]]
    for name, since in names.items():
        rows.append([f"`{name}`", since, *(f[name][1] if name in f else "-" for f in booted.values())])
    return rows


def document(boots, results):
    """The text of docs/kernels.md; results: {name: {check's name: passed, failed or skipped}}."""
    parts = [HEAD, "\n", markdown(rows_of(boots)), COLUMNS]
    for name, b in boots.items():
        if isinstance(b, Exception):
            parts.append(f"\n{name} was not tried: {str(b).splitlines()[0]}\n")
        elif b.refusal:
            parts.append(f"\n{name} is refused: {b.refusal}\n")
    parts.append("\n## Samples by outcome\n\n" + markdown(outcome_rows(boots)))
    parts.append("\n## Features that flamed uses where they are\n\n" + markdown(feature_rows(boots)))
    checked = [["check", *results]]
    for f in checks.CHECKS:
        line = [results[name].get(f.__name__, "-") for name in results]
        checked.append([f.__name__.replace("_", " "), *line])
    parts.append("\n## What was checked\n\n" + markdown(checked))
    return re.sub(r"\n{3,}", "\n\n", "".join(parts))
