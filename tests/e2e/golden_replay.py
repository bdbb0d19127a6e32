"""golden_replay - what a replay of a recording (tests/golden) makes of it, as text: a line for each stack."""

import collections
import lzma
import subprocess

import harness


def folded(path):
    """`comm root;...;leaf count` of a recording (.events.xz), sorted; and the replay's summary."""
    log, profile = harness.scratch_file(".events"), harness.scratch_file(".pb.gz")
    with lzma.open(path) as f, open(log, "wb") as out:
        out.write(f.read())
    argv = [harness.FLAMED, "replay", log, "-o", profile]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"flamed replay of {path}: {done.stderr}"
    stacks = collections.Counter()
    for s in harness.load_stacks(profile):
        stacks[f"{s.comm} {squeezed(s.names)}"] += s.count
    lines = "".join(f"{stack} {n}\n" for stack, n in sorted(stacks.items()))
    return lines, harness.Summary(done.stderr)


def squeezed(names):
    """Root first; what repeats is counted: thousands of frames of a recursion are one."""
    out = []
    for name in names:
        if out and out[-1][0] == name:
            out[-1][1] += 1
        else:
            out.append([name, 1])
    return ";".join(name if n == 1 else f"{name} x{n}" for name, n in out)
