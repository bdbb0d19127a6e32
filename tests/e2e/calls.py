"""calls - whether neighbours in a profile's stacks can have called each other, by their files' machine code.

The unwinder knows that a return address follows a call. Where that call names its target, this follows it: the
frame above must be in the function that was called, or in one that it jumps to (a tail call, a part that the compiler
put elsewhere). A frame too many, one left out and one of another stack are all seen, at each such call. It shares
nothing with the unwinder: functions are those of .eh_frame_hdr, read here. Calls through registers, memory and
procedure linkage tables, files without CFI and memory without a file say nothing and are not counted.
"""

import bisect
import collections
import functools
import re
import struct

SIGRETURN = bytes.fromhex("48c7c00f0000000f05")
PT_LOAD, PT_GNU_EH_FRAME = 1, 0x6474E550
TABLE_ENCODING = b"\x03\x3b"  # number of FDEs, and their table: what all linkers write
JUMP = re.compile(rb"\xe9(?=....)|\xeb(?=.)|\x0f[\x80-\x8f](?=....)|[\x70-\x7f](?=.)", re.DOTALL)
JUMP_ANYWHERE = re.compile(rb"\xff[\x20-\x2f\x60-\x6f\xa0-\xaf\xe0-\xef]")
FUNCTIONS_MAX = 64  # that a chain of jumps may go through


class File:
    def __init__(self, path):
        with open(path, "rb") as f:
            self.data = f.read()
        self.loads, self.starts, self.ends = [], [], []
        if self.data[:6] != b"\x7fELF\x02\x01":
            return
        phoff, phentsize, phnum = struct.unpack_from("<Q", self.data, 32)[0], *struct.unpack_from("<HH", self.data, 54)
        header = None
        for i in range(phnum):
            kind, _, offset, vaddr, _, size = struct.unpack_from("<IIQQQQ", self.data, phoff + i * phentsize)
            if kind == PT_LOAD:
                self.loads.append((vaddr, offset, size))
            elif kind == PT_GNU_EH_FRAME:
                header = vaddr
        if header is not None:
            self.read_functions(header)

    def at(self, vaddr, size):
        for start, offset, length in self.loads:
            if start <= vaddr and vaddr + size <= start + length:
                return self.data[offset + vaddr - start : offset + vaddr - start + size]
        return b""

    def read_functions(self, header):
        if self.at(header + 2, 2) != TABLE_ENCODING:
            return
        count = struct.unpack("<I", self.at(header + 8, 4))[0]
        for start, fde in struct.iter_unpack("<ii", self.at(header + 12, 8 * count)):
            begin, length = struct.unpack("<iI", self.at(header + fde + 8, 8))
            if header + fde + 8 + begin == header + start:  # else it has another encoding
                self.starts.append(header + start)
                self.ends.append(header + start + length)

    def function(self, vaddr):
        """Its first address; None where there is none."""
        i = bisect.bisect_right(self.starts, vaddr) - 1
        return self.starts[i] if i >= 0 and vaddr < self.ends[i] else None

    def is_start(self, vaddr):
        return self.function(vaddr) == vaddr

    def called_at(self, vaddr):
        """The function that the call which ends behind this address names, None where it names none."""
        code = self.at(vaddr - 4, 5)
        if code[:1] != b"\xe8":
            return None
        target = vaddr + 1 + struct.unpack("<i", code[1:])[0]
        return target if self.is_start(target) else None

    @functools.cache
    def jumps(self, start):
        """The functions that one may jump to, and whether it may jump anywhere. What looks like a jump is one."""
        code = self.at(start, self.ends[bisect.bisect_right(self.starts, start) - 1] - start)
        targets = set()
        for at in range(len(code)):
            match = JUMP.match(code, at)
            if match:
                end = match.end()
                size = 4 if match[0][0] in (0xE9, 0x0F) else 1
                off = int.from_bytes(code[end : end + size], "little", signed=True)
                target = self.function(start + end + size + off)
                if target is not None:
                    targets.add(target)
        return targets - {start}, bool(JUMP_ANYWHERE.search(code))

    @functools.cache
    def reaches(self, start, wanted):
        """Whether code that begins at `start` can be in the function `wanted` without a call; None: unknown."""
        seen, todo = {start}, [start]
        while todo:
            at = todo.pop()
            if at == wanted:
                return True
            if len(seen) > FUNCTIONS_MAX:
                return None
            targets, anywhere = self.jumps(at)
            if anywhere:
                return None
            todo += targets - seen
            seen |= targets
        return False


@functools.cache
def file_of(path):
    try:
        return File(path)
    except (OSError, struct.error):
        return None


def pair(path, callee, caller):
    """True or False; None where the call says nothing."""
    file = file_of(path)
    if not file or file.at(callee, len(SIGRETURN)) == SIGRETURN:
        return None
    function, called = file.function(callee), file.called_at(caller)
    if function is None or called is None:
        return None
    return file.reaches(called, function)


def check(profile, wanted=lambda labels: True):
    """(calls that were followed, {(path, callee, caller): wrong ones}), in samples; of the samples with such labels."""
    paths = {m.id: profile.string(m.filename) for m in profile.mapping}
    places = {l.id: (paths.get(l.mapping_id), l.address) for l in profile.location}
    judged, followed, wrong = {}, 0, collections.Counter()
    for sample in profile.sample:
        if not wanted(profile.labels_of(sample)):
            continue
        frames = [places[i] for i in sample.location_id]
        for (path, callee), (path_of_caller, caller) in zip(frames, frames[1:]):
            if path != path_of_caller or not path or not path.startswith("/"):
                continue
            key = path, callee, caller
            if key not in judged:
                judged[key] = pair(*key)
            if judged[key] is not None:
                followed += sample.value[0]
            if judged[key] is False:
                wrong[key] += sample.value[0]
    return followed, wrong
