"""The validator must see each broken rule: one case breaks one rule of a profile that is right."""

import contextlib
import copy
import gzip
import inspect
import io
import os
import re
import tempfile

import pprof


def varint(n):
    n &= (1 << 64) - 1
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes(out + bytes([n]))


def encode(fields):
    """fields: (number, int | bytes | list of fields); zeros are written too."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            body = value if isinstance(value, bytes) else encode(value)
            out += varint(number << 3 | 2) + varint(len(body)) + body
    return out


class Good:
    """A profile that keeps every rule: two threads of one program, an inlined function."""

    def __init__(self):
        self.strings = [b"", b"samples", b"count", b"cpu", b"nanoseconds", b"pid", b"tid", b"comm", b"service_name"]
        s = self.string
        self.head = {9: 1700000000 * 10**9, 10: 15 * 10**9, 12: 10**7, 14: s("cpu")}
        self.types = [[(1, s("samples")), (2, s("count"))], [(1, s("cpu")), (2, s("nanoseconds"))]]
        self.period_type = [(1, s("cpu")), (2, s("nanoseconds"))]
        self.mappings = [
            dict(id=1, start=0x1000, limit=0x9000, offset=0x1000, filename=s("/bin/app"), build_id=s("00ff"),
                 functions=1, filenames=1, lines=1, inlines=1),
            dict(id=2, start=0, limit=0x2000000, offset=0, filename=s("[kernel]"), build_id=0,
                 functions=1, filenames=0, lines=0, inlines=0),
        ]
        self.functions = [
            dict(id=1, name=s("main"), system=s("main"), filename=s("a.c"), line=3),
            dict(id=2, name=s("inner"), system=s("inner.isra.0"), filename=s("a.c"), line=1),
            dict(id=3, name=s("do_syscall_64"), system=s("do_syscall_64"), filename=0, line=0),
        ]
        self.locations = [
            dict(id=1, mapping=1, address=0x1234, lines=[(2, 2), (1, 5)], folded=0),
            dict(id=2, mapping=2, address=0x100, lines=[(3, 0)], folded=0),
        ]
        self.samples = [
            dict(stack=[2, 1], values=[3, 30100000], labels=self.labels(10, 10, "app")),
            dict(stack=[1], values=[1, 9930000], labels=self.labels(10, 11, "worker")),
        ]
        self.extra = []

    def string(self, text):
        data = text if isinstance(text, bytes) else text.encode()
        if data not in self.strings:
            self.strings.append(data)
        return self.strings.index(data)

    def labels(self, pid, tid, comm):
        s = self.string
        return [dict(key=s("pid"), num=pid), dict(key=s("tid"), num=tid), dict(key=s("service_name"), str=s("app")),
                dict(key=s("comm"), str=s(comm))]

    def bytes(self):
        out = [(1, t) for t in self.types]
        for x in self.samples:
            labels = [(3, [(1, l["key"]), (2, l.get("str", 0)), (3, l.get("num", 0)), (4, l.get("unit", 0))])
                      for l in x["labels"]]
            out.append((2, [(1, b"".join(map(varint, x["stack"]))), (2, b"".join(map(varint, x["values"])))] + labels))
        for m in self.mappings:
            out.append((3, list(zip(range(1, 11), m.values()))))
        for x in self.locations:
            lines = [(4, [(1, f), (2, n)]) for f, n in x["lines"]]
            out.append((4, [(1, x["id"]), (2, x["mapping"]), (3, x["address"])] + lines + [(5, x["folded"])]))
        for f in self.functions:
            out.append((5, list(zip(range(1, 6), f.values()))))
        out += [(6, text) for text in self.strings]
        out += list(self.head.items())
        out += [(11, self.period_type)] if self.period_type else []
        return encode(out + self.extra)

    def file(self):
        return gzip.compress(self.bytes(), mtime=0)


def rules(data):
    return {v.split(":")[0] for v in pprof.validate_bytes(data)}


CASES = []


def breaks(*expected):
    """The rules that the change breaks; no others may be reported."""

    def register(change):
        CASES.append((change, set(expected)))
        return change

    return register


def set_in(entries, index, **changes):
    def change(g):
        getattr(g, entries)[index].update(changes)

    return change


def text_in(entries, index, key, text):
    def change(g):
        getattr(g, entries)[index][key] = g.string(text)

    return change


for what, expected in [
    (set_in("mappings", 1, filename=99), "string-index"),
    (set_in("mappings", 1, filename=0), "mapping-filename"),
    (set_in("mappings", 0, build_id=-1), "string-index build-id"),
    (text_in("mappings", 0, "build_id", "00FF"), "build-id"),
    (text_in("mappings", 0, "build_id", "00f"), "build-id"),
    (set_in("mappings", 0, functions=0), "has-functions"),
    (set_in("mappings", 0, limit=0x1000), "mapping-range address-range"),
    (set_in("mappings", 0, start=0x2000), "address-range"),
    (set_in("mappings", 0, limit=0x1234), "address-range"),
    (set_in("mappings", 0, id=3), "mapping-ids mapping-id mapping-claims unused-mapping"),
    (set_in("mappings", 0, lines=0), "mapping-claims"),
    (set_in("mappings", 1, filenames=1), "mapping-claims"),
    (set_in("mappings", 1, inlines=1), "mapping-claims"),
    (set_in("functions", 0, name=0), "function-name"),
    (set_in("functions", 0, system=99), "string-index"),
    (set_in("functions", 0, id=0), "function-ids function-id unused-function"),
    (set_in("functions", 0, line=-1), "line-number"),
    (set_in("locations", 0, mapping=0), "mapping-id mapping-claims unused-mapping"),
    (set_in("locations", 0, mapping=7), "mapping-id mapping-claims unused-mapping"),
    (set_in("locations", 1, lines=[]), "location-line unused-function"),
    (set_in("locations", 1, lines=[(9, 0)]), "function-id unused-function"),
    (set_in("locations", 0, lines=[(2, -2), (1, 5)]), "line-number"),
    (set_in("locations", 0, folded=1), "folded"),
    (set_in("locations", 1, id=5), "location-ids location-id unused-location"),
    (set_in("samples", 0, stack=[]), "sample-stack unused-location"),
    (set_in("samples", 1, stack=[1, 9]), "location-id"),
    (set_in("samples", 1, values=[1]), "value-count"),
    (set_in("samples", 1, values=[-1, -9930000]), "negative-value cpu-time"),
    (set_in("samples", 1, values=[0, 0]), "zero-value"),
    (set_in("samples", 1, values=[1, 9860000]), "cpu-time"),
    (set_in("samples", 1, values=[1, 10140000]), "cpu-time"),
]:
    breaks(*expected.split())(what)


@breaks("run-time-address")
def a_library_where_it_was_loaded(g):
    g.mappings[0].update(start=0x7F0000001000, limit=0x7F0000009000)
    g.locations[0]["address"] = 0x7F0000001234


@breaks("string-table", "duplicate-string", "build-id")
def the_first_string_is_not_empty(g):
    g.strings[0] = b"main"


@breaks("utf8")
def a_string_of_bytes(g):
    g.strings[g.string("main")] = b"ma\xffin"


@breaks("utf8")
def a_surrogate(g):
    g.strings[g.string("main")] = b"\xed\xa0\x80"


@breaks("nul")
def a_string_with_nul(g):
    g.strings[g.string("main")] = b"ma\0in"


@breaks("duplicate-string", "unused-string")
def a_string_twice(g):
    g.strings.append(b"main")


@breaks("unused-string")
def a_string_for_nothing(g):
    g.string("nothing")


@breaks("sample-types", "value-count", "default-sample-type")
def one_sample_type(g):
    g.types.pop()
    g.head[14] = g.string("samples")


@breaks("sample-types")
def types_in_the_wrong_order(g):
    g.types.reverse()


@breaks("sample-types", "sample-type-name", "default-sample-type")
def a_type_with_a_dash(g):
    g.strings[g.string("cpu")] = b"on-cpu"
    g.period_type = [(1, g.string("cpu")), (2, g.string("nanoseconds"))]


@breaks("period-type")
def no_period_type(g):
    g.period_type = None


@breaks("period-type")
def another_period_type(g):
    g.period_type = [(1, g.string("samples")), (2, g.string("count"))]


@breaks("period", "cpu-time")
def no_period(g):
    g.head[12] = 0


@breaks("period")
def a_period_of_no_frequency(g):
    g.head[12] = 10**7 + 5000


@breaks("time")
def no_time(g):
    g.head[9] = 0


@breaks("duration")
def no_duration(g):
    g.head[10] = 0


@breaks("default-sample-type")
def no_default(g):
    g.head[14] = 0


@breaks("frames-filter")
def frames_to_drop(g):
    g.head[7] = g.string("main")


@breaks("string-index")
def a_comment_from_nowhere(g):
    g.extra.append((13, 99))


@breaks("unknown-field")
def a_field_of_another_format(g):
    g.extra.append((99, 1))


@breaks("duplicate-mapping", "unused-mapping", "mapping-claims")
def a_mapping_twice(g):
    g.mappings.append(dict(g.mappings[0], id=3))


@breaks("duplicate-function", "unused-function")
def a_function_twice(g):
    g.functions.append(dict(g.functions[0], id=4))


@breaks("duplicate-location")
def a_location_twice(g):
    g.locations.append(dict(g.locations[0], id=3))
    g.samples[1]["stack"] = [3]


@breaks("duplicate-sample")
def a_sample_twice(g):
    g.samples.append(copy.deepcopy(g.samples[0]))


@breaks("label-missing")
def no_pid(g):
    g.samples[0]["labels"].pop(0)


@breaks("label-missing")
def no_service(g):
    for s in g.samples:
        s["labels"].pop(2)


@breaks("label-value")
def a_pid_as_text(g):
    g.samples[0]["labels"][0] = dict(key=g.string("pid"), str=g.string("10"))


@breaks("label-value")
def a_pid_of_zero(g):
    g.samples[0]["labels"][0]["num"] = 0


@breaks("label-value", "unused-string")
def a_comm_as_number(g):
    g.samples[1]["labels"][3] = dict(key=g.string("comm"), num=5)


@breaks("label-value")
def a_comm_that_no_kernel_makes(g):
    g.samples[0]["labels"][3]["str"] = g.string("sixteen_letters_")


@breaks("label-key")
def a_label_of_another_name(g):
    g.samples[0]["labels"].append(dict(key=g.string("thread"), num=5))


@breaks("label-unit")
def a_label_with_a_unit(g):
    g.samples[0]["labels"][0]["unit"] = g.string("count")


@breaks("duplicate-label")
def a_label_twice(g):
    g.samples[0]["labels"].append(dict(g.samples[0]["labels"][0]))


@breaks("service-name")
def a_service_that_servers_refuse(g):
    g.samples[0]["labels"][2]["str"] = g.string("my app")


@breaks("unused-location")
def a_location_for_nothing(g):
    g.locations.append(dict(g.locations[0], id=3, address=0x1300))


def test_a_good_profile_has_no_violation():
    assert pprof.validate_bytes(Good().file()) == []


def test_each_broken_rule_is_reported():
    for change, expected in CASES:
        g = Good()
        change(g)
        found = rules(g.file())
        # A changed reference often leaves its string behind.
        assert expected <= found <= expected | {"unused-string"}, f"{change.__name__}: expected {sorted(expected)}, found {sorted(found)}"


def test_every_rule_has_a_case():
    source = inspect.getsource(pprof.Validator)
    named = set(re.findall(r'(?:check|broken)\((?:[^"\n]|"")*"([a-z0-9-]+)"[,\)]', source))
    named |= set(re.findall(r'^ +"([a-z0-9-]+)", f?"', source, re.M))
    named |= {f"{kind}-{what}" for kind in ("duplicate", "unused") for what in ("mapping", "function", "location")}
    named |= {f"{what}-ids" for what in ("mapping", "function", "location")}
    named -= {"pid", "cpu"}
    covered = set().union(*(expected for _, expected in CASES))
    assert len(named) > 35, sorted(named)
    assert named <= covered, f"no case breaks {sorted(named - covered)}"


def test_what_is_no_profile_is_said_to_be_none():
    good = Good().file()
    for data in (b"", b"no gzip", Good().bytes(), good[:-9], gzip.compress(b"\xff" * 20, mtime=0),
                 gzip.compress(b"\x0a\x7f", mtime=0), gzip.compress(b"\x0b", mtime=0),
                 gzip.compress(b"\x08\x01", mtime=0), gzip.compress(b"\x62\x01x", mtime=0)):
        assert rules(data) == {"format"}, (data, pprof.validate_bytes(data))


def test_every_cut_of_a_profile_is_noticed():
    data = Good().bytes()
    for n in range(len(data)):
        assert pprof.validate_bytes(gzip.compress(data[:n], mtime=0)), f"the first {n} bytes pass"


def test_bytes_around_the_profile_are_noticed():
    assert rules(gzip.compress(Good().bytes(), mtime=5)) == {"gzip-header"}
    assert rules(Good().file() + b"x") == {"gzip-rest"}
    assert rules(Good().file() * 2) == {"gzip-rest"}


def test_many_violations_of_one_rule_are_summed_up():
    g = Good()
    g.strings += [b"unused %d" % i for i in range(50)]
    found = pprof.validate_bytes(g.file())
    assert len(found) == pprof.SHOWN_PER_RULE + 1 and found[-1] == "unused-string: 40 more", found


def test_a_profile_reads_as_it_was_written():
    with tempfile.NamedTemporaryFile() as f:
        f.write(Good().file())
        f.flush()
        p = pprof.load(f.name)
        assert pprof.validate(f.name) == []
    first, second = p.stacks()
    assert first.frames == ["do_syscall_64", "inner", "main"]
    assert first.mappings == ["[kernel]", "/bin/app", "/bin/app"]
    assert first.values == {"samples": 3, "cpu": 30100000}
    assert first.labels == {"pid": 10, "tid": 10, "service_name": "app", "comm": "app"}
    assert second.labels["tid"] == 11
    assert p.total("samples") == 4 and p.total("cpu") == 40030000
    assert p.by_label("comm") == {"app": {"samples": 3, "cpu": 30100000}, "worker": {"samples": 1, "cpu": 9930000}}
    assert list(p.by_label("nothing")) == [None]


def test_numbers_may_be_packed_or_not():
    packed = pprof.Sample(encode([(1, varint(5) + varint(300)), (2, varint(-1))]))
    plain = pprof.Sample(encode([(1, 5), (1, 300), (2, -1)]))
    assert packed.location_id == plain.location_id == [5, 300]
    assert packed.value == plain.value == [-1]


def run_quietly(*args):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = pprof.main(["pprof.py", *args])
    return status, out.getvalue() + err.getvalue()


def test_the_command_line_exits_as_it_says():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "p")
        with open(path, "wb") as f:
            f.write(Good().file())
        assert run_quietly("validate", path) == (0, "")
        assert "do_syscall_64" in run_quietly("top", path)[1]
        assert run_quietly("stacks", path)[1].splitlines()[0] == "main;inner;do_syscall_64 30100000"
        assert run_quietly("validate", path + ".missing")[0] == 1
        g = Good()
        g.head[9] = 0
        with open(path, "wb") as f:
            f.write(g.file())
        assert run_quietly("validate", path) == (1, "time: time_nanos 0\n")
        assert run_quietly("nonsense", path)[0] == 2
