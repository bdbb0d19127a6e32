"""The stand-in server does what a real one was seen to do: rows of docs/pyroscope.md."""

import base64
import contextlib
import gzip
import http.client
import json
import time
import urllib.parse

from standin import PUSH, Fault, Standin
from test_pprof_validator import Good, encode

JSON = "application/json"


class Pushed(Good):
    """A profile of now, without sample labels; two stacks."""

    def __init__(self, age_s=0):
        super().__init__()
        self.head[9] = round((time.time() - age_s) * 1e9)
        for sample in self.samples:
            sample["labels"] = []

    def repeat(self, n):
        self.samples = [dict(stack=[1], values=[1, 10**7], labels=[])] * n
        return self

    def pad(self, n):
        """Makes it n bytes larger, uncompressed."""
        self.extra.append((6, b"x" * n))
        return self


LABELS = {"__name__": "process_cpu", "service_name": "svc", "hostname": "h"}


def series(profile, labels=None):
    data = profile if isinstance(profile, bytes) else profile.file()
    pairs = labels if isinstance(labels, list) else list((labels or LABELS).items())
    encoded = [(1, [(1, k.encode()), (2, v.encode())]) for k, v in pairs]
    return (1, encoded + [(2, [(1, data), (2, b"id")])])


@contextlib.contextmanager
def running(**options):
    standin = Standin(**options)
    try:
        yield standin
    finally:
        standin.stop()


def ask(standin, path, body, content_type, headers=None, method="POST"):
    connection = http.client.HTTPConnection("127.0.0.1", standin.port, timeout=20)
    headers = {"Content-Type": content_type, **(headers or {})}
    connection.request(method, path, body, headers)
    reply = connection.getresponse()
    data = reply.read()
    connection.close()
    if reply.headers.get("Content-Encoding") == "gzip":
        data = gzip.decompress(data)
    return reply.status, data.decode()


def push(standin, *all_series, headers=None, content_type="application/proto", body=None):
    body = encode(all_series) if body is None else body
    return ask(standin, standin.options["prefix"] + PUSH, body, content_type, headers)


def multipart(profile, filename='; filename="profile.pprof"', config=None):
    data = profile if isinstance(profile, bytes) else profile.file()
    parts = f'--b\r\nContent-Disposition: form-data; name="profile"{filename}\r\n\r\n'.encode() + data + b"\r\n"
    if config is not None:
        head = '--b\r\nContent-Disposition: form-data; name="sample_type_config"; filename="c"\r\n\r\n'
        parts += head.encode() + config + b"\r\n"
    return parts + b"--b--\r\n"


def ingest(standin, body, name="svc{hostname=h}", content_type="multipart/form-data; boundary=b", **more):
    query = urllib.parse.urlencode({"name": name, "spyName": "flamed", **more})
    return ask(standin, "/ingest?" + query, body, content_type)


def check(got, status, *words):
    assert got[0] == status, f"{got}, {status} expected"
    for word in words:
        assert word in got[1], f"{word!r} is not in {got}"


def test_a_good_push_is_stored_with_its_sums_and_type():
    with running() as standin:
        for body in (Pushed().file(), Pushed().bytes()):
            check(push(standin, series(body)), 200)
        assert standin.total() == 8 and standin.total("cpu") == 2 * (30100000 + 9930000)
        stored = standin.profiles[0]
        assert stored.labels == {"service_name": "svc", "hostname": "h"}, stored.labels
        assert stored.type_ids[1] == "process_cpu:cpu:nanoseconds:cpu:nanoseconds", stored.type_ids
        assert ("main", "inner", "do_syscall_64") in stored.stacks, stored.stacks


def test_a_message_may_be_gzip_and_then_the_reply_is():
    with running() as standin:
        body = gzip.compress(encode([series(Pushed())]))
        check(push(standin, body=body, headers={"Content-Encoding": "gzip"}), 200)
        assert len(standin.profiles) == 1


def test_other_encodings_and_types_are_refused():
    with running() as standin:
        got = push(standin, series(Pushed()), headers={"Content-Encoding": "zstd"})
        check(got, 501, "unimplemented", 'unknown compression \\"zstd\\": supported encodings are gzip')
        got = push(standin, series(Pushed()), content_type="application/octet-stream")
        assert got == (415, ""), got
        assert not standin.profiles


def test_no_series_is_refused_by_name():
    with running() as standin:
        for content_type, body in (("application/proto", b""), (JSON, b"{}")):
            got = push(standin, content_type=content_type, body=body)
            check(got, 400, "invalid_argument", "no profiles received")


def test_json_is_taken_too():
    with running() as standin:
        raw = base64.b64encode(Pushed().file()).decode()
        labels = [{"name": k, "value": v} for k, v in LABELS.items()]
        body = json.dumps({"series": [{"labels": labels, "samples": [{"rawProfile": raw}]}]})
        check(push(standin, body=body.encode(), content_type=JSON), 200)
        assert standin.total() == 4


def test_good_series_are_stored_beside_a_bad_one():
    with running() as standin:
        bad = list(LABELS.items()) + [("hostname", "h2")]
        got = push(standin, series(Pushed()), series(Pushed(), bad), series(Pushed()))
        check(got, 400, "duplicate label name")
        assert len(standin.profiles) == 2


def test_the_rate_limiter_never_lets_pass_what_is_larger_than_its_burst():
    with running(limit=True) as standin:
        check(push(standin, series(Pushed().pad(1900000))), 200)
    with running(limit=True) as standin:
        for _ in range(2):
            got = push(standin, series(Pushed().pad(3 << 20)))
            check(got, 429, "resource_exhausted", "push rate limit (4.0 MiB) exceeded while adding 3.0 MiB")
        assert not standin.profiles


def test_profiles_over_a_limit_are_refused():
    with running() as standin:
        check(push(standin, series(Pushed().pad(5 << 20))), 400, "exceeds limit of 4.2 MB")
        got = push(standin, series(Pushed().repeat(17000)))
        check(got, 400, "samples count limit", "actual: 17000, limit: 16000")
        assert not standin.profiles


def test_labels_over_a_limit_are_refused():
    with running() as standin:
        many = {**LABELS, **{f"l{i}": "v" for i in range(27)}}
        check(push(standin, series(Pushed(), many)), 200)
        check(push(standin, series(Pushed(), {**many, "more": "v"})), 400)
        check(push(standin, series(Pushed(), {**LABELS, "x": "v" * 3000})), 400)
        assert len(standin.profiles) == 1


def test_time_has_a_window():
    with running() as standin:
        for age_s, status in ((50 * 60, 200), (2 * 3600, 400), (-20 * 60, 400)):
            check(push(standin, series(Pushed(age_s))), status)
        got = push(standin, series(Pushed(2 * 3600)))
        check(got, 400, "is outside of ingestion window (profile timestamp:")
        check(ingest(standin, multipart(Pushed(2 * 3600))), 422, '"unknown"', "outside of ingestion window")
        assert len(standin.profiles) == 1


def test_what_is_no_profile_is_a_500():
    with running() as standin:
        check(push(standin, series(b"no profile at all")), 500, "unknown", "proto:")
        profile = Pushed()
        profile.strings[-1] = b"\xff\xfe"
        check(push(standin, series(profile)), 400, "invalid utf8 string hex: fffe")
        assert not standin.profiles


def test_what_the_server_repairs_is_repaired():
    with running() as standin:
        profile = Pushed()
        profile.samples = [
            dict(stack=[1], values=[1, 2], labels=[]), dict(stack=[1], values=[3, 4], labels=[]),
            dict(stack=[2], values=[0, 0], labels=[]), dict(stack=[2], values=[-1, 5], labels=[]),
        ]  # fmt: skip
        check(push(standin, series(profile, {"__name__": "process_cpu"})), 200)
        (stored,) = standin.profiles
        assert stored.service == "unknown_service" and stored.totals == {"samples": 4, "cpu": 6}
        profile.samples = []
        check(push(standin, series(profile)), 200)
        assert len(standin.profiles) == 1, "a profile without samples stores nothing"


def test_sample_labels_become_series_and_deep_stacks_lose_their_leaf():
    with running() as standin:
        profile = Pushed()
        profile.samples[0]["labels"] = [dict(key=profile.string("pid"), str=profile.string("7"))]
        profile.samples[1]["stack"] = [2] + [1] * 1200
        check(push(standin, series(profile)), 200)
        assert {p.labels.get("pid") for p in standin.profiles} == {None, "7"}
        (deep,) = standin.stored(pid=None)
        assert "do_syscall_64" not in next(iter(deep.stacks))


def test_ingest_needs_a_filename_to_see_the_profile():
    with running() as standin:
        assert ingest(standin, multipart(Pushed(), filename="")) == (200, "")
        assert not standin.profiles
        assert ingest(standin, multipart(Pushed())) == (200, "")
        (stored,) = standin.profiles
        assert stored.labels == {"service_name": "svc", "hostname": "h", "pyroscope_spy": "flamed"}
        assert stored.type_ids[1] == "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
        check(ingest(standin, Pushed().file(), format="pprof"), 200)
        check(ingest(standin, multipart(b"")), 200)
        assert len(standin.profiles) == 2


def test_ingest_refuses_names_and_duplicate_labels():
    with running() as standin:
        got = ingest(standin, multipart(Pushed()), name="a name")
        check(got, 400, "invalid_argument", "name: invalid service name")
        got = ingest(standin, multipart(Pushed()), name="svc{pyroscope_spy=x}")
        check(got, 422, "unknown", "invalid_argument", "duplicate label name")
        check(ingest(standin, multipart(Pushed(), config=b"{")), 422)
        check(ingest(standin, multipart(Pushed()), name="svc{service_name=zz}"), 200)
        assert standin.services() == {"zz"}
        body = gzip.compress(multipart(Pushed()))
        check(ask(standin, "/ingest?name=a", body, "multipart/form-data; boundary=b",
                  {"Content-Encoding": "gzip"}), 422)  # fmt: skip


def test_strangers_are_refused_as_each_gateway_does():
    with running(users={"1": "glc_x"}) as standin:
        check(push(standin, series(Pushed())), 401, "authentication error: no credentials provided")
        wrong = {"Authorization": "Basic " + base64.b64encode(b"1:other").decode()}
        check(push(standin, series(Pushed()), headers=wrong), 401, "invalid scope requested")
        right = {"Authorization": "Basic " + base64.b64encode(b"1:glc_x").decode()}
        check(push(standin, series(Pushed()), headers=right), 200)
    with running(tenants=True) as standin:
        check(push(standin, series(Pushed())), 401, "unauthenticated", "no org id")
        check(push(standin, series(Pushed()), headers={"X-Scope-OrgID": "t"}), 200)


def test_unknown_paths_and_methods_are_refused():
    with running(prefix="/v1/p") as standin:
        check(ask(standin, PUSH, b"", JSON), 404)
        check(push(standin, series(Pushed())), 200)
        check(ask(standin, "/v1/p" + PUSH, None, JSON, method="GET"), 405)
    with running(push=False) as standin:
        check(push(standin, series(Pushed())), 404, "404 page not found")


def test_faults_come_and_go():
    with running() as standin:
        standin.fault(Fault.error("unavailable", "no ingester"), times=1)
        check(push(standin, series(Pushed())), 503, "no ingester")
        check(push(standin, series(Pushed())), 200)
        for store, stored in ((False, 1), (True, 2)):
            standin.fault(Fault.close(store), times=1)
            try:
                push(standin, series(Pushed()))
            except (http.client.HTTPException, ConnectionError):
                pass
            else:
                raise AssertionError("a connection that closes has no reply")
            assert len(standin.profiles) == stored, (store, len(standin.profiles))
        standin.fault(Fault.html404(), times=1)
        check(push(standin, series(Pushed())), 404, "<html>")


def test_duplicates_are_found():
    with running() as standin:
        profile = Pushed()
        for _ in range(2):
            check(push(standin, series(profile)), 200)
        assert len(standin.duplicates()) == 1
