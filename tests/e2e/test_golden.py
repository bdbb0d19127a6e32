"""Recordings of old give the stacks that they gave: unwinding, naming and counting, without a running program."""

import glob
import os

import golden_replay
import harness

DIRECTORY = os.path.join(harness.ROOT, "tests/golden")
NAMES = sorted(os.path.basename(p).partition(".")[0] for p in glob.glob(f"{DIRECTORY}/*.events.xz"))


def make_test(name):
    def test():
        with open(os.path.join(DIRECTORY, f"{name}.folded"), encoding="utf-8") as f:
            expected = f.read()
        found, summary = golden_replay.folded(os.path.join(DIRECTORY, f"{name}.events.xz"))
        gone = sorted(set(expected.splitlines()) - set(found.splitlines()))
        new = sorted(set(found.splitlines()) - set(expected.splitlines()))
        assert found == expected, f"{name}: no longer {gone[:5]}\nbut {new[:5]}"
        total = sum(int(line.rpartition(" ")[2]) for line in found.splitlines())
        assert total == summary.samples == sum(summary.stacks.values()), summary.text

    return test


for _name in NAMES:
    globals()[f"test_{_name}"] = make_test(_name)


def test_every_kind_of_end_is_among_them():
    outcomes = set()
    for name in NAMES:
        outcomes |= set(golden_replay.folded(os.path.join(DIRECTORY, f"{name}.events.xz"))[1].stacks)
    wanted = {"complete", "truncated", "no_cfi", "too_deep", "compat32"}
    assert wanted <= outcomes, f"missing: {wanted - outcomes}"
