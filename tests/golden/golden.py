#!/usr/bin/python3
"""golden - makes the recordings of this directory anew: golden.py KERNELS. Run by `make golden`.

Each NAME.events.xz is what `flamed record --events` wrote in a guest (tests/kernels), NAME.folded what the replay
makes of it: a line for each stack, root first. tests/e2e/test_golden.py replays them.
"""

import lzma
import os
import re
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../kernels"), os.path.join(HERE, "../e2e")]
sys.dont_write_bytecode = True

import golden_replay  # noqa: the path is set above
import harness
import initramfs
import machine

KERNEL = "6.1"
XZ = {"preset": 9 | lzma.PRESET_EXTREME}


def programs(stages):
    with open(stages, encoding="ascii") as f:
        return sorted(set(re.findall(r"/w/(\w+)", f.read())))


def without_place(data):
    """Go notes where its source was: another path of the same length."""
    root = harness.ROOT.encode()
    return data.replace(root, (b"/" + b"source" * (len(root) // 6 + 1))[: len(root)])


def main(kernels):
    stages, kernel = os.path.join(HERE, "stages"), os.path.join(kernels, KERNEL)
    with tempfile.TemporaryDirectory(prefix="flamed-golden-") as scratch:
        guest = machine.Machine(kernel, initramfs.build(kernel, stages, programs(stages)), scratch)
        try:
            files = guest.wait()
        finally:
            guest.stop()
    if "failed" in files:
        said = "".join(data.decode(errors="replace") for path, data in files.items() if path.endswith(".said"))
        sys.exit(f"golden: {files['failed'].decode()}\n{said}")
    for path, data in sorted(files.items()):
        name, end = os.path.splitext(os.path.basename(path))
        if end != ".events":
            continue
        base = os.path.join(HERE, name)
        with lzma.open(base + ".events.xz", "wb", **XZ) as f:
            f.write(without_place(data))
        text = golden_replay.folded(base + ".events.xz")[0]
        with open(base + ".folded", "w", encoding="utf-8") as f:
            f.write(text)
        print(f"{name}: {os.path.getsize(base + '.events.xz')} bytes, {text.count(chr(10))} stacks")
    harness.stop_all()


if len(sys.argv) != 2:
    sys.exit(__doc__)
main(sys.argv[1])
