"""A crowd of slow clients against a running daemon, and what its probes see meanwhile."""

import os
import signal
import socket
import threading
import time

from daemon import Daemon, fetch, free_port

NCLIENTS = 300
#: What a probe is given; Kubernetes' default is one second, and this host is busy with other things.
PROBE_S = 2


class Crowd:
    """Clients that send a byte now and then of a request that never ends; who is closed comes again."""

    REQUEST = b"GET / HTTP/1.1\r\nX-Slow: "

    def __init__(self, port):
        self.port = port
        self.nsent = self.nclosed = 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def connect(self):
        s = socket.socket()
        s.setblocking(False)
        s.connect_ex(("127.0.0.1", self.port))
        return s

    def run(self):
        clients = {self.connect(): 0 for _ in range(NCLIENTS)}
        while not self.over.wait(0.1):
            for s, n in list(clients.items()):
                try:
                    clients[s] = n + s.send(self.REQUEST[n : n + 1] or b"x")
                    self.nsent += 1
                except BlockingIOError:
                    continue
                except OSError:
                    self.nclosed += 1
                    s.close()
                    del clients[s]
                    clients[self.connect()] = 0
        for s in clients:
            s.close()

    def end(self):
        self.over.set()
        self.thread.join()


def probe(port, path):
    begin = time.monotonic()
    status, _, _ = fetch(port, path, timeout=PROBE_S)
    return status, time.monotonic() - begin


def test_slow_clients_keep_neither_probes_nor_the_page_from_their_answers():
    port = free_port()
    daemon = Daemon({"page": Daemon.page(port)})
    for at, paths in (
        (daemon.metrics_port, ("/healthz", "/readyz", "/metrics")),
        (port, (f"/{daemon.token}/", f"/{daemon.token}/api/v1/status")),
    ):
        crowd = Crowd(at)
        while crowd.nsent < 20 * NCLIENTS or crowd.nclosed < NCLIENTS:
            for path in paths:
                status, seconds = probe(at, path)
                assert status == 200 and seconds < PROBE_S, (path, status, seconds)
        crowd.end()
    ended = daemon.metrics().by("flamed_listener_connections_ended_total", "reason", listener="page")
    assert ended["crowded"] >= NCLIENTS, ended
    assert daemon.metrics().get("flamed_child_restarts_total") == 0
    daemon.stop()


def test_profiles_whose_clients_left_are_told_to_the_next_and_not_waited_for():
    daemon = Daemon({"page": Daemon.page(port := free_port())})
    path = f"/{daemon.token}/debug/pprof/profile?seconds=60"
    taken = daemon.metrics().get("flamed_taps_total")
    for n in range(16):
        with socket.create_connection(("127.0.0.1", port)) as s:
            s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            daemon.wait_metric(lambda m, n=n: m.get("flamed_taps_total") == taken + n + 1, "it to be taken")
    status, headers, body = fetch(port, path, timeout=5)
    assert status == 503 and headers["Retry-After"] and b"16 profiles" in body, (status, body)

    # An exporter that does not know of those before it asks the agent, which does.
    os.kill(daemon.helpers()["exporter"], signal.SIGKILL)
    daemon.wait_metric(lambda m: m.get("flamed_child_restarts_total", child="exporter") == 1, "a new exporter")
    status, headers, body = fetch(port, path, timeout=5)
    assert status == 503 and headers["Retry-After"] and b"taking 16 already" in body, (status, body)
    daemon.wait_metric(lambda m: m.get("flamed_taps_refused_total", reason="too_many") == 1, "a refusal")
    daemon.stop()
