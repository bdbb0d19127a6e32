"""pyroscope_rules - what a Pyroscope server does with a profile: refuses, repairs, stores.

The rules and texts are those of docs/pyroscope.md, which says how each is known. No network here:
standin.py puts HTTP around it. Like the server it forgives and forgets: what normalisation removes
is removed without a word, so that a test sees what a user of the server would see.
"""

import collections
import hashlib
import json
import re
import time
import urllib.parse
import zlib

import pprof

MIB = 1 << 20
MAX_BODY = 256 * MIB
MAX_PROFILE = 4 * MIB
MAX_SAMPLES = 16000
MAX_SAMPLE_LABELS = 100
MAX_DEPTH = 1000
MAX_SYMBOL = 65535
MAX_LABELS = 30
MAX_LABEL_NAME = 1024
MAX_LABEL_VALUE = 2048
OLDEST_S, NEWEST_S = 3600, 600
RATE, BURST = 4 * MIB, 2 * MIB
SHOWN_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

HTTP_OF = {
    "invalid_argument": 400, "failed_precondition": 400, "out_of_range": 400, "unauthenticated": 401,
    "permission_denied": 403, "not_found": 404, "already_exists": 409, "aborted": 409,
    "resource_exhausted": 429, "canceled": 499, "unknown": 500, "internal": 500, "data_loss": 500,
    "unimplemented": 501, "unavailable": 503, "deadline_exceeded": 504,
}  # fmt: skip


class Refused(Exception):
    """A Connect error; status is Push's, unless the caller has a better one."""

    def __init__(self, code, message, status=None):
        super().__init__(message)
        self.code, self.message = code, message
        self.status = status or HTTP_OF[code]

    def body(self):
        return json.dumps({"code": self.code, "message": self.message}).encode()


def invalid(message):
    return Refused("invalid_argument", message)


# ---- the messages of push.proto ------------------------------------------------------------------


class LabelPair(pprof.Message):
    FIELDS = {1: ("name", "bytes"), 2: ("value", "bytes")}


class RawSample(pprof.Message):
    FIELDS = {1: ("raw_profile", "bytes"), 2: ("id", "bytes")}


class RawProfileSeries(pprof.Message):
    FIELDS = {1: ("labels", "LabelPair*"), 2: ("samples", "RawSample*"), 3: ("annotations", "bytes*")}


class PushRequest(pprof.Message):
    FIELDS = {1: ("series", "RawProfileSeries*")}


# pprof.Message looks kinds up in its own module.
for _kind in (LabelPair, RawSample, RawProfileSeries):
    setattr(pprof, _kind.__name__, _kind)


def text_of(raw):
    try:
        return (raw or b"").decode()
    except UnicodeDecodeError:
        raise invalid("proto: field contains invalid UTF-8") from None


def push_series(body):
    """[(labels, raw profile, id)] of a PushRequest."""
    try:
        request = PushRequest(body)
        result = []
        for series in request.series:
            labels = [(text_of(x.name), text_of(x.value)) for x in series.labels]
            for sample in series.samples:
                result.append((labels, sample.raw_profile or b"", text_of(sample.id)))
    except pprof.PprofError as error:
        raise invalid(f"unmarshal message: proto: {error}") from None
    if not request.series:
        raise invalid("no profiles received")
    return result


# ---- what is stored ------------------------------------------------------------------------------


class Stored:
    """One profile as the server keeps it: a series of labels, and sums by stack.

    stacks: {root-first tuple of function names: {sample type: sum}}; totals: {sample type: sum}.
    """

    def __init__(self, labels, profile, samples, meta):
        self.labels = dict(labels)
        self.name = self.labels.pop("__name__")
        self.service = self.labels.get("service_name", "")
        types = profile.types()
        period = ("", "")
        if profile.period_type:
            period = (profile.string(profile.period_type.type), profile.string(profile.period_type.unit))
        self.type_ids = [":".join((self.name, *t, *period)) for t in types]
        self.totals = collections.Counter()
        self.stacks = {}
        for names, values in samples:
            sums = self.stacks.setdefault(names, collections.Counter())
            for (kind, _), value in zip(types, values):
                sums[kind] += value
                self.totals[kind] += value
        self.time_ns = profile.time_nanos
        if self.time_ns <= 0:
            self.time_ns = round(meta.get("time_from", meta["now"]) * 1e9)
        self.duration_ns = profile.duration_nanos
        self.period = profile.period
        self.meta = meta  # transport, headers, tenant, id, now, digest

    @property
    def series(self):
        return tuple(sorted(self.labels.items()))

    @property
    def samples(self):
        return self.totals["samples"]

    @property
    def cpu_ns(self):
        return self.totals["cpu"]


# ---- one profile ---------------------------------------------------------------------------------


def inflate_profile(raw):
    if raw[:2] == b"\x1f\x8b":
        z = zlib.decompressobj(16 + zlib.MAX_WBITS)
        try:
            raw = z.decompress(raw, MAX_PROFILE + 1)
        except zlib.error as error:
            raise Refused("unknown", f"gzip: {error}") from None
        if not z.eof and len(raw) <= MAX_PROFILE:
            raise Refused("unknown", "unexpected EOF")
    if len(raw) > MAX_PROFILE:
        raise invalid("uncompressed profile payload size exceeds limit of 4.2 MB")
    return raw


def parse_profile(raw):
    try:
        return pprof.Profile(raw)
    except pprof.PprofError as error:
        raise Refused("unknown", f"proto: {error}") from None


def labels_text(labels):
    return "{" + ", ".join(f'{k}="{v}"' for k, v in sorted(labels)) + "}"


def check_labels(labels):
    names = [name for name, _ in labels]
    where = labels_text(labels)
    if not dict(labels).get("__name__"):
        raise invalid("invalid metric name")
    if len(labels) > MAX_LABELS:
        raise invalid(f"profile series '{where}' has {len(labels)} label names; limit {MAX_LABELS}")
    for name, value in labels:
        if not name:
            raise invalid(f"profile with labels '{where}' has an empty label name")
        if len(name.encode()) > MAX_LABEL_NAME:
            raise invalid(f"profile with labels '{where}' has label name too long: '{name[:40]}'")
        if len(value.encode()) > MAX_LABEL_VALUE:
            raise invalid(f"profile with labels '{where[:200]}' has label value too long: '{value[:40]}'")
        if names.count(name) > 1:
            raise invalid(f"profile with labels '{where}' has duplicate label name: '{name}'")


def show_time(seconds):
    whole = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03} +0000 UTC"


def check_time(profile, labels, now):
    if profile.time_nanos <= 0:
        return
    seconds, show = profile.time_nanos / 1e9, show_time
    if not now - OLDEST_S <= seconds <= now + NEWEST_S:
        raise invalid(
            f"profile with labels '{labels_text(labels)}' is outside of ingestion window (profile timestamp: {show(seconds)}, "
            f"the ingestion window starts at {show(now - OLDEST_S)} and ends at {show(now + NEWEST_S)})"
        )


def check_structure(p):
    """What the server calls a malformed profile."""

    def bad(text):
        return invalid(f"malformed profile: {text}")

    n = len(p.string_table)
    if len(p.sample) > MAX_SAMPLES:
        raise invalid(
            "profile exceeds the samples count limit (max_profile_stacktrace_samples, "
            f"actual: {len(p.sample)}, limit: {MAX_SAMPLES})"
        )
    if any(len(s.label) > MAX_SAMPLE_LABELS for s in p.sample):
        raise invalid("profile exceeds the sample labels limit (max_profile_stacktrace_sample_labels)")
    if not p.sample_type:
        raise bad("no sample type")
    if not n or p.string_table[0] != b"":
        raise bad("string 0 should be empty string")
    indexes = [(t.type, "sample type") for t in p.sample_type]
    indexes += [(i, "label") for s in p.sample for x in s.label for i in (x.key, x.str)]
    indexes += [(i, "function") for f in p.function for i in (f.name, f.system_name, f.filename)]
    indexes += [(i, "mapping") for m in p.mapping for i in (m.filename, m.build_id)]
    for index, what in indexes:
        if not 0 <= index < n:
            raise bad(f"{what} string index {index} is out of range")
    if any(x.id == 0 for x in p.location):
        raise bad("location id is 0")
    if any(f.id == 0 for f in p.function):
        raise bad("function id is 0")
    if any(len(s.value) != len(p.sample_type) for s in p.sample):
        raise bad("sample value length mismatch")
    for t in p.sample_type:
        if b"-" in p.string_table[t.type]:
            raise bad("sample type contains -")
    for raw in p.string_table:
        try:
            raw[-MAX_SYMBOL:].decode()
        except UnicodeDecodeError:
            raise invalid(f"invalid utf8 string hex: {raw[:100].hex()}") from None


def frames_of(p):
    """{location id: its function names, innermost first}; without what the server removes."""
    functions = {f.id: p.string(f.name) for f in p.function}
    mappings = {m.id: m for m in p.mapping}
    result = {}
    for x in p.location:
        missing = (x.mapping_id and x.mapping_id not in mappings) or any(
            line.function_id not in functions for line in x.line
        )
        if missing or (not x.line and not x.address):
            continue
        if x.line:
            result[x.id] = tuple(functions[line.function_id] for line in x.line)
        else:
            m = mappings.get(x.mapping_id)
            known = m is not None and m.has_functions
            result[x.id] = ("0x0" if known else f"{x.address:#x}",)
    return result


def normalised(p):
    """[(sample labels, root-first names, values)] of what survives."""
    frames = frames_of(p)
    result = []
    for s in p.sample:
        if any(v < 0 for v in s.value) or not any(s.value):
            continue
        if any(i not in frames for i in s.location_id):
            continue
        labels = tuple((p.string(x.key), p.string(x.str)) for x in s.label if x.str)
        names = [name for i in reversed(s.location_id[-MAX_DEPTH:]) for name in reversed(frames[i])]
        result.append((labels, tuple(names), list(s.value)))
    return result


NOT_SERIES = ("span_id", "trace_id", "profile_id")


def merged_series(p, labels):
    """{series labels: [(names, values)]}: sample labels make series of their own."""
    groups = {}
    for own, names, values in normalised(p):
        series = list(labels) + [pair for pair in own if pair[0] not in NOT_SERIES]
        groups.setdefault(tuple(sorted(series)), []).append((names, values))
    return groups


class Limiter:
    """A token bucket: what is larger than it never passes."""

    def __init__(self, rate=RATE, burst=BURST):
        self.rate, self.burst = rate, burst
        self.tokens, self.at = burst, time.monotonic()

    def take(self, n):
        now = time.monotonic()
        self.tokens = min(self.burst, self.tokens + (now - self.at) * self.rate)
        self.at = now
        if n > self.tokens:
            raise Refused(
                "resource_exhausted",
                f"push rate limit ({self.rate / MIB:.1f} MiB) exceeded while adding {n / MIB:.1f} MiB",
            )
        self.tokens -= n


def accept(labels, raw, now, limiter=None, meta=None):
    """[Stored] of one series' profile; Refused where the server refuses."""
    raw = inflate_profile(raw)
    p = parse_profile(raw)
    if limiter:
        limiter.take(len(raw) + sum(len(k) + len(v) for k, v in labels))
    if not dict(labels).get("service_name"):
        labels = [x for x in labels if x[0] != "service_name"] + [("service_name", "unknown_service")]
    check_labels(labels)
    check_time(p, labels, now)
    check_structure(p)
    groups = merged_series(p, labels)
    for series in groups:
        check_labels(series)
    digest = hashlib.sha256(raw).hexdigest()
    meta = {**(meta or {}), "now": now, "digest": digest, "raw": raw}
    return [Stored(series, p, samples, meta) for series, samples in groups.items()]


# ---- /ingest -------------------------------------------------------------------------------------


def parse_query(query):
    """As Go does: a pair with a bare `;` is dropped, `+` is a blank."""
    result = {}
    for pair in query.split("&"):
        if pair and ";" not in pair:
            key, _, value = pair.partition("=")
            result.setdefault(urllib.parse.unquote_plus(key), urllib.parse.unquote_plus(value))
    return result


def parse_name(text):
    """(service, [(key, value)]) of `name`; there is no quoting, `,` and `}` end a value."""
    app, brace, rest = text.partition("{")
    app = app.strip()
    if not re.fullmatch(r"[A-Za-z0-9_./-]+", app):
        raise invalid(f"name: invalid service name {app!r}")
    labels = {}
    for pair in rest.partition("}")[0].split(",") if brace else []:
        if not pair.strip():
            continue
        key, _, value = pair.partition("=")
        key = key.strip()
        if not re.fullmatch(r"[A-Za-z0-9_.]+", key) or key == "__name__":
            raise invalid(f"name: invalid label name {key!r}")
        if not key.startswith("__") or key == "__session_id__":
            labels[key] = value.strip()
    return app, list(labels.items())


def parse_ingest_time(text):
    """Seconds of `from`; None where it is no absolute time."""
    digits = re.sub(r"[_, ]", "", text or "")
    if not digits.isdigit():
        return None
    scale = {13: 1e3, 16: 1e6, 19: 1e9}.get(len(digits), 1)
    return int(digits) / scale


def file_parts(body, content_type):
    """{form name: bytes} of the parts with a filename: no other is looked at."""
    match = re.search(r'boundary="?([^";,]+)"?', content_type)
    mark = b"--" + match[1].encode() if match else b""
    if not mark or mark not in body:
        raise Refused("unknown", "multipart: NextPart: EOF", 422)
    if mark + b"--" not in body:
        raise Refused("unknown", "multipart: NextPart: unexpected EOF", 422)
    result = {}
    for piece in body.split(mark)[1:]:
        if piece.startswith(b"--"):
            break
        head, blank, data = piece.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        line = re.search(rb"^content-disposition:(.*)$", head, re.I | re.M)
        if not blank or not line:
            continue
        name = re.search(rb'[; ]name="([^"]*)"', line[1])
        if name and re.search(rb'filename="[^"]+"', line[1]):
            result[name[1].decode(errors="replace")] = data.removesuffix(b"\r\n")
    return result


def metric_name(p, config):
    """`__name__` of an ingested profile, by its sample types and their display names."""
    builtin = {"samples": "cpu", "goroutine": "goroutines", "contentions": "mutex_count",
               "delay": "mutex_duration"}  # fmt: skip
    types = [kind for kind, _ in p.types()]
    if "wall" in types:
        return "wall"
    shown = [config.get(t, {}).get("display-name") or builtin.get(t, t) for t in types]
    for name in shown:
        for words, result in ((("cpu",), "process_cpu"), (("alloc_", "inuse_"), "memory"),
                              (("mutex_",), "mutex"), (("block_",), "block"),
                              (("goroutines",), "goroutines")):  # fmt: skip
            if any(word in name for word in words) or (result == "memory" and name in ("space", "objects")):
                return result
    return shown[-1] if shown else ""


def ingest(query, content_type, body, now, limiter=None, meta=None):
    """[Stored] of one /ingest request. Every refusal after the name's is a 422, a rate limit a 429."""
    parameters = parse_query(query)
    service, labels = parse_name(parameters.get("name", ""))
    try:
        return ingest_body(parameters, service, labels, content_type, body, now, limiter, meta)
    except Refused as error:
        if error.code == "resource_exhausted":
            raise
        raise Refused("unknown", f"{error.code}: {error.message}", 422) from None


def ingest_body(parameters, service, labels, content_type, body, now, limiter, meta):
    config = {}
    if parameters.get("format") == "pprof":
        raw = body
    elif "multipart/form-data" in content_type and "format" not in parameters:
        parts = file_parts(body, content_type)
        raw = parts.get("profile", b"")
        if parts.get("prev_profile"):
            raise Refused("unknown", "unsupported client version", 422)
        try:
            config = json.loads(parts.get("sample_type_config") or b"{}")
        except ValueError as error:
            raise Refused("unknown", f"sample_type_config: {error}", 422) from None
    else:
        raise Refused("unknown", "strconv.Atoi: parsing folded text", 422)  # no client of ours sends it
    if not raw:
        return []  # 200, and nothing is stored
    raw = inflate_profile(raw)
    p = parse_profile(raw)
    if any(not 0 <= t.type < len(p.string_table) for t in p.sample_type):
        raise Refused("internal", "panic: index out of range", 422)
    if not 0 < p.time_nanos and parse_ingest_time(parameters.get("from")):
        meta = {**(meta or {}), "time_from": parse_ingest_time(parameters["from"])}
    pairs = [("__name__", metric_name(p, config)), ("pyroscope_spy", parameters.get("spyName", "unknown"))]
    if not any(key == "service_name" for key, _ in labels):
        pairs.append(("service_name", service))
    return accept(pairs + labels, raw, now, limiter, meta)
