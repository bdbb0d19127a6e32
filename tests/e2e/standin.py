#!/usr/bin/python3
"""standin - a strict stand-in for a Pyroscope server.

    standin.py [--port N] [--limit] [--user NAME:PASSWORD] [--tls CERT KEY]

It refuses what the real one refuses, with its codes and texts, and silently stores nothing where
the real one does (pyroscope_rules.py). Faults are ordered from it: Standin.fault. By hand it prints a
line for each request; GET /standin/summary tells what is stored, as JSON.
"""

import argparse
import base64
import collections
import contextlib
import gzip
import http.server
import json
import re
import socket
import ssl
import sys
import threading
import time
import zlib

import pyroscope_rules as rules
from pyroscope_rules import Refused

PUSH = "/push.v1.PusherService/Push"
INGEST = ("/ingest", "/pyroscope/ingest")
TENANT = re.compile(r"[0-9A-Za-z!\-_.*'()]{1,150}")
NGINX_413 = b"<html>\r\n<head><title>413 Request Entity Too Large</title></head>\r\n</html>\r\n"
NGINX_404 = b"<html>\r\n<head><title>404 Not Found</title></head>\r\n</html>\r\n"


class Fault:
    """What goes wrong with a request. store: it is processed before that."""

    def __init__(self, store=False, **how):
        self.store, self.how = store, how

    @staticmethod
    def status(code, body=b"", content_type="text/plain", headers=None):
        return Fault(status=code, body=body, content_type=content_type, headers=headers or {})

    @staticmethod
    def error(code, message):
        """A Connect error."""
        refused = Refused(code, message)
        return Fault.status(refused.status, refused.body(), "application/json")

    @staticmethod
    def html404():
        return Fault.status(404, NGINX_404, "text/html")

    @staticmethod
    def proxy413():
        return Fault.status(413, NGINX_413, "text/html")

    @staticmethod
    def redirect(url, code=301):
        return Fault.status(code, headers={"Location": url})

    @staticmethod
    def hang():
        """No reply until the server is healed or stopped."""
        return Fault(hang=True)

    @staticmethod
    def close(store=False):
        """The connection ends without a reply; with store the profile was kept."""
        return Fault(store, close=True)

    @staticmethod
    def slow(seconds):
        return Fault(True, slow=seconds)


class Request:
    """A request as it came, and what it was answered."""

    def __init__(self, method, path, headers, size):
        self.method, self.path, self.headers, self.size = method, path, headers, size
        self.at = time.monotonic()
        self.status = None
        self.reply = b""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "standin"
    timeout = 60

    def log_message(self, *args):
        pass

    def setup(self):
        super().setup()
        self.server.standin.connections.add(self.connection)
        self.server.standin.accepted += 1

    def finish(self):
        self.server.standin.connections.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def handle_one_request(self):
        with contextlib.suppress(ConnectionError, ssl.SSLError, BrokenPipeError):
            return super().handle_one_request()
        self.close_connection = True

    def do_GET(self):
        self.serve(b"")

    do_HEAD = do_PUT = do_DELETE = do_GET

    def do_POST(self):
        body = self.read_body()
        if body is not None:
            self.serve(body)

    def read_body(self):
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            chunks = []
            while True:
                size = int(self.rfile.readline().split(b";")[0], 16)
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
                if not size:
                    return b"".join(chunks)
        size = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(size)
        if len(body) != size:
            self.close_connection = True
            return None
        return body

    def serve(self, body):
        standin = self.server.standin
        headers = {k.lower(): v for k, v in self.headers.items()}
        request = Request(self.command, self.path, headers, len(body))
        standin.note(request)
        fault = standin.next_fault(request)
        if fault is None:
            self.answer(request, *standin.serve(request, body))
        else:
            self.go_wrong(standin, request, body, fault)

    def go_wrong(self, standin, request, body, fault):
        reply = standin.serve(request, body) if fault.store else None
        how = fault.how
        if "slow" in how:
            standin.stopping.wait(how["slow"])
            self.answer(request, *reply)
        elif "status" in how:
            self.answer(request, how["status"], how["body"], how["content_type"], how["headers"])
        else:
            if "hang" in how:
                standin.wait_healed(self.connection)
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

    def answer(self, request, status, body, content_type, headers=None):
        request.status, request.reply = status, body
        zipped = "gzip" in request.headers.get("accept-encoding", "") or (
            "gzip" in request.headers.get("content-encoding", "")
        )
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if content_type:
            self.send_header("Content-Type", content_type)
        if zipped and PUSH in request.path:
            body = gzip.compress(body, mtime=0)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        pass  # a client that goes away is no news


class Standin:
    """A running server. profiles: what it stored; requests: all it was asked.

    users: {name: password} for Basic auth; bearer: a token; tenants: X-Scope-OrgID is required;
    auth_style: "grafana" or "proxy" (an nginx page); limit: the rate limiter of a default server;
    push: whether there is Push at all; prefix: of both paths.
    """

    def __init__(self, port=0, **options):
        defaults = {"users": None, "bearer": None, "tenants": False, "auth_style": "grafana",
                    "limit": False, "push": True, "prefix": "", "tls": None, "on_request": None}  # fmt: skip
        unknown = set(options) - set(defaults)
        assert not unknown, unknown
        self.options = {**defaults, **options}
        self.lock = threading.Lock()
        self.profiles, self.requests = [], []
        self.accepted = 0  # connections
        self.connections = set()
        self.limiters = collections.defaultdict(rules.Limiter)
        self.faults = None  # function of a request, or None
        self.healed, self.stopping = threading.Event(), threading.Event()
        self.port = port
        self.start()

    # ---- life ----

    def start(self):
        self.stopping.clear()
        self.http = Server(("127.0.0.1", self.port), Handler)
        self.http.standin = self
        self.port = self.http.server_address[1]
        if self.options["tls"]:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self.options["tls"])
            self.http.socket = context.wrap_socket(
                self.http.socket, server_side=True, do_handshake_on_connect=False
            )
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def stop(self):
        """Nothing listens any more; what is stored stays. start() opens the same port again."""
        self.stopping.set()
        self.healed.set()
        self.http.shutdown()
        self.http.server_close()
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.thread.join()

    @property
    def url(self):
        scheme = "https" if self.options["tls"] else "http"
        return f"{scheme}://127.0.0.1:{self.port}{self.options['prefix']}"

    # ---- faults ----

    def fault(self, fault, times=None, only=None):
        """From now on (for `times` requests) this goes wrong; fault may be a function of the request."""
        left = [times]

        def choose(request):
            if only and not only(request):
                return None
            if left[0] is not None:
                if left[0] == 0:
                    return None
                left[0] -= 1
            return fault(request) if callable(fault) else fault

        with self.lock:
            self.healed.clear()
            self.faults = choose

    def heal(self):
        with self.lock:
            self.faults = None
        self.healed.set()

    def next_fault(self, request):
        with self.lock:
            return self.faults(request) if self.faults else None

    def wait_healed(self, connection):
        """Until then, or until the client gives up."""
        while not self.healed.wait(0.05) and not self.stopping.is_set():
            with contextlib.suppress(OSError, ValueError):
                if connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b"":
                    return

    # ---- what it was asked ----

    def note(self, request):
        with self.lock:
            self.requests.append(request)
        if self.options["on_request"]:
            self.options["on_request"](request)

    def serve(self, request, body):
        """(status, body, content type[, headers])"""
        path, _, query = request.path.partition("?")
        refusal = self.refuse_stranger(request)
        if refusal:
            return refusal
        if path == "/standin/summary" and request.method == "GET":
            return 200, json.dumps(self.summary()).encode(), "application/json"
        if path == "/ready":
            return 200, b"ready\n", "text/plain"
        prefix = self.options["prefix"]
        inner = path[len(prefix) :] if path.startswith(prefix) else ""
        is_push = inner == PUSH and self.options["push"]
        if not is_push and inner not in INGEST:
            return 404, b"404 page not found\n", "text/plain; charset=utf-8"
        if request.method != "POST":
            return 405, b"", "", {"Allow": "POST"}
        try:
            tenant = self.tenant_of(request)
            with self.lock:
                serve = self.serve_push if is_push else self.serve_ingest
                return serve(request, query, body, tenant)
        except Refused as error:
            return error.status, error.body(), "application/json"

    def refuse_stranger(self, request):
        users, bearer = self.options["users"], self.options["bearer"]
        if users is None and bearer is None:
            return None
        given = request.headers.get("authorization", "")
        if users and given.startswith("Basic "):
            with contextlib.suppress(ValueError):
                name, _, password = base64.b64decode(given[6:], validate=True).decode().partition(":")
                if users.get(name) == password:
                    return None
        if bearer and given == f"Bearer {bearer}":
            return None
        if self.options["auth_style"] == "grafana":
            why = "invalid scope requested" if given else "no credentials provided"
            text = json.dumps({"status": "error", "error": f"authentication error: {why}"})
            return 401, text.encode(), "application/json"
        return 401, b"<html><h1>401 Authorization Required</h1></html>", "text/html"

    def tenant_of(self, request):
        if not self.options["tenants"]:
            return "anonymous"
        tenant = request.headers.get("x-scope-orgid", "")
        if not tenant:
            raise Refused("unauthenticated", "no org id")
        if not TENANT.fullmatch(tenant) or tenant in (".", ".."):
            raise Refused("invalid_argument", "tenant ID contains unsupported characters", 400)
        return tenant

    def store(self, labels, raw, request, transport, tenant, uuid=""):
        meta = {"transport": transport, "headers": request.headers, "tenant": tenant, "id": uuid,
                "labels": labels}  # fmt: skip
        limiter = self.limiters[tenant] if self.options["limit"] else None
        if transport == "push":
            return rules.accept(labels, raw, time.time(), limiter, meta)
        query, content_type = labels
        return rules.ingest(query, content_type, raw, time.time(), limiter, meta)

    def serve_push(self, request, _query, body, tenant):
        content_type = request.headers.get("content-type", "").partition(";")[0].strip()
        if content_type not in ("application/proto", "application/json"):
            return 415, b"", ""
        body = decoded(body, request.headers.get("content-encoding", ""))
        if content_type == "application/json":
            series = json_series(body)
        else:
            series = rules.push_series(body)
        first = None
        for labels, raw, uuid in series:  # all are tried, the first error is told
            try:
                self.profiles += self.store(labels, raw, request, "push", tenant, uuid)
            except Refused as error:
                first = first or error
        if first:
            raise first
        return 200, b"" if content_type == "application/proto" else b"{}", content_type

    def serve_ingest(self, request, query, body, tenant):
        if len(body) > rules.MAX_BODY:
            return 413, b"", ""
        what = (query, request.headers.get("content-type", ""))
        self.profiles += self.store(what, body, request, "ingest", tenant)
        return 200, b"", ""

    # ---- what tests ask ----

    def stored(self, **labels):
        """Profiles whose series has these labels."""
        with self.lock:
            return [p for p in self.profiles if all(p.labels.get(k) == v for k, v in labels.items())]

    def total(self, kind="samples"):
        with self.lock:
            return sum(p.totals[kind] for p in self.profiles)

    def windows(self):
        """Start times, in order."""
        with self.lock:
            return sorted({p.time_ns for p in self.profiles})

    def duplicates(self):
        """Profiles of one series, time and content that came more than once."""
        with self.lock:
            keys = collections.Counter(
                (p.meta["tenant"], p.series, p.time_ns, p.duration_ns, p.meta["digest"])
                for p in self.profiles
            )
        return [key for key, n in keys.items() if n > 1]

    def services(self):
        with self.lock:
            return {p.service for p in self.profiles}

    def statuses(self):
        with self.lock:
            return collections.Counter(r.status for r in self.requests if r.status)

    def summary(self):
        with self.lock:
            return {
                "profiles": len(self.profiles), "requests": len(self.requests),
                "samples": sum(p.samples for p in self.profiles),
                "cpu_ns": sum(p.cpu_ns for p in self.profiles),
                "services": sorted({p.service for p in self.profiles}),
                "bytes": sum(r.size for r in self.requests),
                "statuses": collections.Counter(str(r.status) for r in self.requests),
            }  # fmt: skip


def decoded(body, encoding):
    if encoding in ("", "identity"):
        return body
    if encoding != "gzip":
        raise Refused("unimplemented", f'unknown compression "{encoding}": supported encodings are gzip')
    try:
        return zlib.decompress(body, 16 + zlib.MAX_WBITS)
    except zlib.error as error:
        raise Refused("invalid_argument", f"decompress: {error}") from None


def json_series(body):
    try:
        request = json.loads(body)
        series = [
            ([(x["name"], x.get("value", "")) for x in s.get("labels", [])],
             base64.b64decode(sample.get("rawProfile", "")), sample.get("ID", ""))
            for s in request.get("series", [])
            for sample in s.get("samples", [])
        ]  # fmt: skip
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise Refused("invalid_argument", f"unmarshal message: {error}") from None
    if not request.get("series"):
        raise Refused("invalid_argument", "no profiles received")
    return series


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    parser.add_argument("--port", type=int, default=4040)
    parser.add_argument("--limit", action="store_true")
    parser.add_argument("--user")
    parser.add_argument("--tls", nargs=2)
    parser.add_argument("--quiet", action="store_true")
    args = parser.parse_args()

    def show(request):
        print(f"{request.method} {request.path[:120]} {request.size} bytes", flush=True)

    users = dict([args.user.split(":", 1)]) if args.user else None
    standin = Standin(args.port, limit=args.limit, users=users, tls=args.tls,
                      on_request=None if args.quiet else show)  # fmt: skip
    print(f"listening on {standin.url}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            time.sleep(3600)
    standin.stop()


if __name__ == "__main__":
    sys.exit(main())
