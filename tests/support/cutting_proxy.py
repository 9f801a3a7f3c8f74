"""A TCP proxy on loopback that cuts answers off: what a network does in the middle of a download.

Invariant: it cuts each of the first `cuts` answers that are longer than `after` bytes, and passes all else on.
"""

from __future__ import annotations

import socket
import socketserver
import threading
from types import TracebackType
from typing import Any


class CuttingProxy:
    """In front of 127.0.0.1:`port`; its own is `port`."""

    def __init__(self, port: int, cuts: int, after: int) -> None:
        self.cuts, self.after, self.cut = cuts, after, 0
        proxy = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with socket.create_connection(("127.0.0.1", port), timeout=30) as behind:
                    up = threading.Thread(target=_pass, args=(self.request, behind), daemon=True)
                    up.start()
                    proxy._down(behind, self.request)

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> CuttingProxy:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _down(self, behind: socket.socket, front: Any) -> None:
        passed = 0
        try:
            while data := behind.recv(8192):
                passed += len(data)
                if passed > self.after and self.cut < self.cuts:
                    self.cut += 1
                    break
                front.sendall(data)
        except OSError:
            pass
        for one in (front, behind):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def _pass(front: Any, behind: socket.socket) -> None:
    try:
        while data := front.recv(8192):
            behind.sendall(data)
    except OSError:
        pass
