#!/usr/bin/python3
"""pprof - an independent reader and validator of flamed's profiles.

    pprof.py validate FILE     prints every broken rule; exit status 1 when there is one
    pprof.py top FILE          functions by CPU time, own and total
    pprof.py stacks FILE       one line a sample: root;...;leaf nanoseconds

It shares no code with the program that writes: the wire format is decoded here, from the public
description of protobuf and of pprof's field numbers. validate() holds three kinds of rules: what the
pprof format says, what servers refuse or silently drop, and what flamed promises (docs/pprof.md).
"""

import collections
import re
import sys
import zlib

LIMIT_BYTES = 1 << 30
TYPES = [("samples", "count"), ("cpu", "nanoseconds")]
# Ticks differ from the nominal period by at most 1.2 %, so that no program runs in step with them.
PERIOD_TOLERANCE = 0.013
# No file has code this high; stacks, libraries and executables of running programs have.
RUN_TIME_ADDRESS = 1 << 44
SHOWN_PER_RULE = 10
# What a process may be labelled with beside pid and tid (docs/pprof.md).
LABELS = ("comm", "service_name", "container_id", "pod_uid", "unit")


class PprofError(Exception):
    """What is no profile at all."""


# ---- the wire format -----------------------------------------------------------------------------


def read_varint(data, at):
    value = shift = 0
    while True:
        if at >= len(data):
            raise PprofError("a number is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            break
        if shift >= 70:
            raise PprofError("a number is longer than 10 bytes")
    if value >= 1 << 64:
        raise PprofError("a number is larger than 64 bits")
    return value, at


def wire_fields(data):
    """Yields (field number, int or bytes)."""
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = read_varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(kind)
            if kind == 2:
                size, at = read_varint(data, at)
            if size is None:
                raise PprofError(f"wire type {kind}")
            if size > len(data) - at:
                raise PprofError("a field is cut off")
            value = data[at : at + size]
            at += size
        yield key >> 3, value


def signed(value):
    return value - (1 << 64) if value >= 1 << 63 else value


class Message:
    """One decoded message. FIELDS: number -> (name, kind); kind ends in * for repeated fields."""

    FIELDS = {}

    def __init__(self, data=b""):
        self.unknown = []
        for name, kind in self.FIELDS.values():
            setattr(self, name, [] if kind.endswith("*") else 0 if kind in INTS else None)
        for number, value in wire_fields(data):
            if number in self.FIELDS:
                self.put(*self.FIELDS[number], value)
            else:
                self.unknown.append(number)

    def put(self, name, kind, value):
        base = kind.rstrip("*")
        if base in INTS:
            values = [value] if isinstance(value, int) else list(self.unpack(value)) if kind.endswith("*") else None
            if values is None:
                raise PprofError(f"{type(self).__name__}.{name} is no number")
            values = [v if base == "u64" else signed(v) for v in values]
        elif isinstance(value, int):
            raise PprofError(f"{type(self).__name__}.{name} is a number")
        else:
            values = [bytes(value) if base == "bytes" else globals()[base](value)]
        if kind.endswith("*"):
            getattr(self, name).extend(values)
        else:
            setattr(self, name, values[-1])

    @staticmethod
    def unpack(data):
        at = 0
        while at < len(data):
            value, at = read_varint(data, at)
            yield value


INTS = ("u64", "i64", "bool")


class ValueType(Message):
    FIELDS = {1: ("type", "i64"), 2: ("unit", "i64")}


class Label(Message):
    FIELDS = {1: ("key", "i64"), 2: ("str", "i64"), 3: ("num", "i64"), 4: ("num_unit", "i64")}


class Sample(Message):
    FIELDS = {1: ("location_id", "u64*"), 2: ("value", "i64*"), 3: ("label", "Label*")}


class Mapping(Message):
    FIELDS = {
        1: ("id", "u64"), 2: ("memory_start", "u64"), 3: ("memory_limit", "u64"), 4: ("file_offset", "u64"),
        5: ("filename", "i64"), 6: ("build_id", "i64"), 7: ("has_functions", "bool"),
        8: ("has_filenames", "bool"), 9: ("has_line_numbers", "bool"), 10: ("has_inline_frames", "bool"),
    }


class Line(Message):
    FIELDS = {1: ("function_id", "u64"), 2: ("line", "i64")}


class Location(Message):
    FIELDS = {
        1: ("id", "u64"), 2: ("mapping_id", "u64"), 3: ("address", "u64"), 4: ("line", "Line*"),
        5: ("is_folded", "bool"),
    }


class Function(Message):
    FIELDS = {
        1: ("id", "u64"), 2: ("name", "i64"), 3: ("system_name", "i64"), 4: ("filename", "i64"),
        5: ("start_line", "i64"),
    }


Stack = collections.namedtuple("Stack", "frames mappings values labels")
Stack.__doc__ = """One sample. frames: function names, leaf first, inlined ones included; mappings: for each of
them the file it is from; values: {"samples": n, "cpu": ns}; labels: {"pid": n, "comm": text, ...}."""


class Profile(Message):
    FIELDS = {
        1: ("sample_type", "ValueType*"), 2: ("sample", "Sample*"), 3: ("mapping", "Mapping*"),
        4: ("location", "Location*"), 5: ("function", "Function*"), 6: ("string_table", "bytes*"),
        7: ("drop_frames", "i64"), 8: ("keep_frames", "i64"), 9: ("time_nanos", "i64"),
        10: ("duration_nanos", "i64"), 11: ("period_type", "ValueType"), 12: ("period", "i64"),
        13: ("comment", "i64*"), 14: ("default_sample_type", "i64"),
    }

    def string(self, index):
        """Never fails: what is wrong with it is the validator's to say."""
        if not 0 <= index < len(self.string_table):
            return f"<string {index}>"
        return self.string_table[index].decode("utf-8", "backslashreplace")

    def types(self):
        return [(self.string(t.type), self.string(t.unit)) for t in self.sample_type]

    def labels_of(self, sample):
        return {self.string(x.key): self.string(x.str) if x.str else x.num for x in sample.label}

    def stacks(self):
        """All samples, as a list of Stack."""
        names = [name for name, _ in self.types()]
        mappings = {m.id: self.string(m.filename) for m in self.mapping}
        functions = {f.id: self.string(f.name) for f in self.function}
        frames = {
            x.id: [(functions.get(line.function_id, "<missing>"), mappings.get(x.mapping_id, "<missing>"))
                   for line in x.line]
            for x in self.location
        }
        result = []
        for s in self.sample:
            flat = [frame for i in s.location_id for frame in frames.get(i, [("<missing>", "<missing>")])]
            result.append(Stack([f for f, _ in flat], [m for _, m in flat], dict(zip(names, s.value)),
                                self.labels_of(s)))
        return result

    def total(self, kind):
        """The sum of one value ("samples", "cpu") over all samples."""
        index = [name for name, _ in self.types()].index(kind)
        return sum(s.value[index] for s in self.sample)

    def by_label(self, key):
        """{value of the label, None without it: {"samples": n, "cpu": ns}}"""
        result = {}
        names = [name for name, _ in self.types()]
        for s in self.sample:
            sums = result.setdefault(self.labels_of(s).get(key), dict.fromkeys(names, 0))
            for name, value in zip(names, s.value):
                sums[name] += value
        return result


# ---- files ---------------------------------------------------------------------------------------


def inflate(data):
    """(header, profile, what follows the gzip member)."""
    z = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        profile = z.decompress(data, LIMIT_BYTES)
        if z.unconsumed_tail:
            raise PprofError("more than 1 GiB")
    except zlib.error as e:
        raise PprofError(f"not a gzip file: {e}") from None
    if not z.eof:
        raise PprofError("the gzip file is cut off")
    return data[:10], profile, z.unused_data


def read(path):
    with open(path, "rb") as f:
        return f.read()


def load(path):
    return Profile(inflate(read(path))[1])


# ---- the validator -------------------------------------------------------------------------------


class Validator:
    """pushed: samples have no labels, as servers would make series of them."""

    def __init__(self, profile, pushed=False):
        self.p = profile
        self.pushed = pushed
        self.found = collections.Counter()
        self.violations = []
        self.used_strings = {0}

    def broken(self, rule, detail):
        self.found[rule] += 1
        if self.found[rule] <= SHOWN_PER_RULE:
            self.violations.append(f"{rule}: {detail}")

    def check(self, condition, rule, detail):
        if not condition:
            self.broken(rule, detail)
        return bool(condition)

    def ref(self, index, what):
        """A reference into the string table; its text."""
        self.check(0 <= index < len(self.p.string_table), "string-index", f"{what}: {index}")
        self.used_strings.add(index)
        return self.p.string(index)

    def run(self):
        self.check_strings()
        self.check_head()
        self.check_mappings()
        self.check_functions()
        self.check_locations()
        self.check_mapping_claims()
        self.check_samples()
        self.check_use()
        self.check_unknown(self.p)
        for rule, n in self.found.items():
            if n > SHOWN_PER_RULE:
                self.violations.append(f"{rule}: {n - SHOWN_PER_RULE} more")
        return self.violations

    def check_strings(self):
        table = self.p.string_table
        self.check(table and table[0] == b"", "string-table", "string_table[0] is not \"\"")
        for i, text in enumerate(table):
            try:
                text.decode("utf-8")
            except UnicodeDecodeError as e:
                self.broken("utf8", f"string {i}: {e}")
            self.check(b"\0" not in text, "nul", f"string {i}")
        for text, n in collections.Counter(table).items():
            self.check(n == 1, "duplicate-string", f"{text!r} appears {n} times")

    def check_head(self):
        p = self.p
        types = [(self.ref(t.type, "sample type"), self.ref(t.unit, "sample unit")) for t in p.sample_type]
        self.check(types == TYPES, "sample-types", str(types))
        for name, _ in types:
            self.check("-" not in name, "sample-type-name", name)
        default = self.ref(p.default_sample_type, "default sample type")
        self.check(default == "cpu", "default-sample-type", default)
        if self.check(p.period_type, "period-type", "missing"):
            kind = (self.ref(p.period_type.type, "period type"), self.ref(p.period_type.unit, "period unit"))
            self.check(kind == ("cpu", "nanoseconds"), "period-type", str(kind))
        hz = round(1e9 / p.period) if p.period > 0 else 0
        self.check(hz > 0 and abs(1e9 / hz - p.period) <= 1, "period", f"{p.period} is no 1e9/hz")
        self.check(p.time_nanos > 0, "time", f"time_nanos {p.time_nanos}")
        self.check(p.duration_nanos > 0, "duration", f"duration_nanos {p.duration_nanos}")
        for name in ("drop_frames", "keep_frames"):
            self.check(getattr(p, name) == 0, "frames-filter", name)
        for index in p.comment:
            self.ref(index, "comment")

    def check_ids(self, entries, what):
        ids = [e.id for e in entries]
        self.check(ids == list(range(1, len(ids) + 1)), f"{what}-ids", f"not 1..{len(ids)} in order: {ids[:20]}")

    def check_unique(self, entries, key, what):
        for k, n in collections.Counter(map(key, entries)).items():
            self.check(n == 1, f"duplicate-{what}", f"{k} appears {n} times")

    def check_mappings(self):
        self.check_ids(self.p.mapping, "mapping")
        for m in self.p.mapping:
            name = self.ref(m.filename, f"filename of mapping {m.id}")
            build_id = self.ref(m.build_id, f"build id of mapping {m.id}")
            what = f"mapping {m.id} ({name}) [{m.memory_start:#x}, {m.memory_limit:#x})"
            self.check(name, "mapping-filename", what)
            self.check(m.has_functions, "has-functions", what)
            self.check(m.memory_start < m.memory_limit, "mapping-range", what)
            self.check(m.memory_start < RUN_TIME_ADDRESS, "run-time-address", what)
            self.check(re.fullmatch(r"([0-9a-f]{2}){0,32}", build_id), "build-id", f"{what}: {build_id!r}")
        self.check_unique(self.p.mapping, lambda m: (m.memory_start, m.memory_limit, m.file_offset,
                                                     self.p.string(m.filename), self.p.string(m.build_id)),
                          "mapping")

    def check_functions(self):
        self.check_ids(self.p.function, "function")
        for f in self.p.function:
            what = f"function {f.id}"
            self.check(self.ref(f.name, f"name of {what}"), "function-name", f"{what} has none")
            self.ref(f.system_name, f"system name of {what}")
            self.ref(f.filename, f"filename of {what}")
            self.check(f.start_line >= 0, "line-number", f"{what} starts in {f.start_line}")
        self.check_unique(self.p.function, lambda f: (self.p.string(f.name), self.p.string(f.system_name),
                                                      self.p.string(f.filename), f.start_line), "function")

    def check_locations(self):
        mappings = {m.id: m for m in self.p.mapping}
        functions = {f.id for f in self.p.function}
        self.check_ids(self.p.location, "location")
        for x in self.p.location:
            what = f"location {x.id} at {x.address:#x}"
            self.check(x.mapping_id != 0, "mapping-id", f"{what} has none")
            m = mappings.get(x.mapping_id)
            self.check(m or not x.mapping_id, "mapping-id", f"{what} names {x.mapping_id}")
            if m:
                self.check(m.memory_start <= x.address < m.memory_limit, "address-range",
                           f"{what} is outside of [{m.memory_start:#x}, {m.memory_limit:#x}) "
                           f"of {self.p.string(m.filename)}")
            self.check(x.address < RUN_TIME_ADDRESS, "run-time-address", what)
            self.check(x.line, "location-line", f"{what} has no function")
            self.check(not x.is_folded, "folded", what)
            for line in x.line:
                self.check(line.function_id in functions, "function-id", f"{what} names {line.function_id}")
                self.check(line.line >= 0, "line-number", f"{what} is in line {line.line}")
        self.check_unique(self.p.location, lambda x: (x.mapping_id, x.address,
                                                      tuple(line.function_id for line in x.line)), "location")

    def check_mapping_claims(self):
        filenames = {f.id for f in self.p.function if f.filename}
        facts = collections.defaultdict(lambda: [False, False, False])
        for x in self.p.location:
            fact = facts[x.mapping_id]
            fact[0] |= any(line.function_id in filenames for line in x.line)
            fact[1] |= any(line.line for line in x.line)
            fact[2] |= len(x.line) > 1
        for m in self.p.mapping:
            claim = [bool(m.has_filenames), bool(m.has_line_numbers), bool(m.has_inline_frames)]
            self.check(claim == facts[m.id], "mapping-claims",
                       f"mapping {m.id} says (filenames, lines, inlines) {claim}, has {facts[m.id]}")

    def check_samples(self):
        p = self.p
        locations = {x.id for x in p.location}
        keys = collections.Counter()
        counts = cpu = 0
        for i, s in enumerate(p.sample):
            what = f"sample {i}"
            self.check(s.location_id, "sample-stack", f"{what} has no frame")
            missing = [x for x in s.location_id if x not in locations]
            self.check(not missing, "location-id", f"{what} names {missing[:5]}")
            if self.check(len(s.value) == len(p.sample_type), "value-count", f"{what} has {len(s.value)}"):
                self.check(min(s.value, default=0) >= 0, "negative-value", f"{what}: {s.value}")
                self.check(0 not in s.value, "zero-value", f"{what}: {s.value}")
            if len(s.value) == 2:
                counts, cpu = counts + s.value[0], cpu + s.value[1]
                self.check_period(what, *s.value)
            labels = self.check_labels(s, what)
            keys[(tuple(s.location_id), tuple(sorted(labels)))] += 1
        for (stack, labels), n in keys.items():
            self.check(n == 1, "duplicate-sample", f"{n} times {stack[:5]} {labels}")
        self.check_period("all samples", counts, cpu)

    def check_period(self, what, count, cpu):
        nominal = count * self.p.period
        self.check(abs(cpu - nominal) <= nominal * PERIOD_TOLERANCE, "cpu-time",
                   f"{what}: {cpu} ns for {count} periods of {self.p.period} ns")

    def check_labels(self, sample, what):
        found = []
        for x in sample.label:
            key = self.ref(x.key, f"a label's key of {what}")
            text = self.ref(x.str, f"label {key} of {what}")
            found.append((key, text, x.num))
            if key in ("pid", "tid"):
                self.check(x.num > 0 and not x.str, "label-value", f"{what}: {key} {x.num} {text!r}")
            elif key in LABELS:
                self.check(x.str and not x.num, "label-value", f"{what}: {key} {x.num} {text!r}")
            else:
                self.broken("label-key", f"{what}: {key!r}")
            self.check(not x.num_unit, "label-unit", f"{what}: {key}")
            if key == "comm":
                self.check(len(text) <= 15, "label-value", f"{what}: a comm of {len(text)} characters")
            if key == "service_name":
                self.check(re.fullmatch(r"[A-Za-z0-9_./-]{1,255}", text), "service-name", f"{what}: {text!r}")
        names = [key for key, _, _ in found]
        self.check(len(names) == len(set(names)), "duplicate-label", f"{what}: {names}")
        if self.pushed:
            self.check(not names, "label-key", f"{what}: {names}")
        else:
            for key in ("pid", "tid", "service_name"):
                self.check(key in names, "label-missing", f"{what} has no {key}")
        return found

    def check_use(self):
        p = self.p
        locations = {i for s in p.sample for i in s.location_id}
        mappings = {x.mapping_id for x in p.location}
        functions = {line.function_id for x in p.location for line in x.line}
        for entries, used, what in ((p.location, locations, "location"), (p.mapping, mappings, "mapping"),
                                    (p.function, functions, "function")):
            for e in entries:
                self.check(e.id in used, f"unused-{what}", f"{what} {e.id}")
        # The writer's own words are there also when no sample needs them.
        words = {b"pid", b"tid", *(name.encode() for name in LABELS)}
        for i, text in enumerate(p.string_table):
            self.check(i in self.used_strings or text in words, "unused-string", f"{i} {text!r}")

    def check_unknown(self, message):
        for number in message.unknown:
            self.broken("unknown-field", f"{type(message).__name__}.{number}")
        for name, _ in message.FIELDS.values():
            value = getattr(message, name)
            for inner in value if isinstance(value, list) else [value]:
                if isinstance(inner, Message):
                    self.check_unknown(inner)


def validate_raw(data, pushed=False):
    """The same of a profile that is not compressed (any more)."""
    try:
        return Validator(Profile(data), pushed).run()
    except PprofError as e:
        return [f"format: {e}"]


def validate_bytes(data):
    """The broken rules of a profile's file, each as "rule: detail"; an empty list when all hold."""
    try:
        header, inner, rest = inflate(data)
        profile = Profile(inner)
    except PprofError as e:
        return [f"format: {e}"]
    violations = []
    if header[3] != 0 or header[4:8] != bytes(4):
        violations.append("gzip-header: it tells a time or a name")
    if rest:
        violations.append(f"gzip-rest: {len(rest)} bytes follow the profile")
    return violations + Validator(profile).run()


def validate(path):
    return validate_bytes(read(path))


# ---- by hand -------------------------------------------------------------------------------------


def top(profile, out):
    own, total = collections.Counter(), collections.Counter()
    for s in profile.stacks():
        if s.frames:
            own[s.frames[0]] += s.values["cpu"]
        for name in set(s.frames):
            total[name] += s.values["cpu"]
    whole = profile.total("cpu") or 1
    print(f"{profile.total('samples')} samples, {whole / 1e9:.2f} s of CPU time", file=out)
    print(f"{'own':>9} {'':>6} {'total':>9} {'':>6}  function", file=out)
    for name in sorted(total, key=lambda n: (-own[n], -total[n], n))[:60]:
        print(f"{own[name] / 1e9:>8.2f}s {100 * own[name] / whole:>5.1f}% {total[name] / 1e9:>8.2f}s "
              f"{100 * total[name] / whole:>5.1f}%  {name}", file=out)


def stacks(profile, out):
    for s in profile.stacks():
        print(";".join(f.replace(";", ":") for f in reversed(s.frames)), s.values["cpu"], file=out)


def main(argv):
    if len(argv) != 3 or argv[1] not in ("validate", "top", "stacks"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        if argv[1] == "validate":
            violations = validate(argv[2])
            for v in violations:
                print(v)
            return 1 if violations else 0
        (top if argv[1] == "top" else stacks)(load(argv[2]), sys.stdout)
    except BrokenPipeError:
        raise
    except (PprofError, OSError) as e:
        print(f"pprof.py: {argv[2]}: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    try:
        status = main(sys.argv)
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = None  # there is nobody to flush it to
        status = 1
    sys.exit(status)
