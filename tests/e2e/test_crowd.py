"""A crowd of slow clients against a running daemon, and what its probes see meanwhile."""

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
