"""A metadata service of our own on loopback that announces nothing, until it is told to: then this node is taken away.

Invariant: it answers only what a notice is read from, in the shape of its cloud, and listens on loopback alone.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

LEAD_SECONDS = {"aws": 120.0, "gcp": 30.0, "azure": 30.0}
"""The notice that each cloud promises."""
MACHINE = "drill"
_EVENT = "drill-preemption"


class DrillServer:
    """Serves from the moment it is made until `close`."""

    def __init__(self, cloud: str, lead_seconds: float) -> None:
        self._http = _Server(cloud, lead_seconds)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True, name="drill-metadata")
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def give(self) -> datetime:
        """From now on the notice is there. Returns the moment."""
        now = datetime.now(UTC)
        self._http.end_at = now + timedelta(seconds=self._http.lead_seconds)
        self._http.given.set()
        return now

    def close(self) -> None:
        self._http.closing = True
        self._http.given.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5)

    def __enter__(self) -> DrillServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, cloud: str, lead_seconds: float) -> None:
        self.cloud = cloud
        self.lead_seconds = lead_seconds
        self.given = threading.Event()
        self.closing = False
        self.end_at: datetime | None = None
        self.token = secrets.token_urlsafe(40)
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """One who hangs up while it waits is no fault."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        {"aws": self._aws, "gcp": self._gcp, "azure": self._azure}[self.server.cloud](url.path, query)

    do_PUT = do_POST = do_GET

    def _reply(self, status: int, text: str = "", **headers: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def _aws(self, path: str, query: Mapping[str, str]) -> None:
        if path == "/latest/api/token":
            self._reply(200, self.server.token) if self.command == "PUT" else self._reply(405)
        elif self.headers.get("X-aws-ec2-metadata-token") != self.server.token:
            self._reply(401)
        elif path == "/latest/meta-data/spot/instance-action" and self.server.end_at is not None:
            self._reply(200, json.dumps({"action": "terminate", "time": f"{self.server.end_at:%Y-%m-%dT%H:%M:%SZ}"}))
        else:
            self._reply(404)

    def _gcp(self, path: str, query: Mapping[str, str]) -> None:
        key = path.removeprefix("/computeMetadata/v1/instance/")
        if self.headers.get("Metadata-Flavor") != "Google":
            return self._reply(403)
        if key == "maintenance-event":
            return self._reply(200, "NONE", Metadata_Flavor="Google", ETag="0")
        if key != "preempted":
            return self._reply(404)
        if query.get("wait_for_change") == "true" and query.get("last_etag") == "0":
            self.server.given.wait(float(query.get("timeout_sec", 60)))
        taken = self.server.end_at is not None
        self._reply(200, "TRUE" if taken else "FALSE", Metadata_Flavor="Google", ETag="1" if taken else "0")

    def _azure(self, path: str, query: Mapping[str, str]) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Metadata", "").lower() != "true":
            return self._reply(400)
        if path == "/metadata/instance/compute/name":
            return self._reply(200, MACHINE)
        if path != "/metadata/scheduledevents":
            return self._reply(404)
        end = self.server.end_at
        events = [] if end is None else [{
            "EventId": _EVENT, "EventType": "Preempt", "ResourceType": "VirtualMachine", "Resources": [MACHINE],
            "EventStatus": "Scheduled", "NotBefore": f"{end:%a, %d %b %Y %H:%M:%S} GMT", "EventSource": "Platform",
        }]  # fmt: skip
        self._reply(200, json.dumps({"DocumentIncarnation": 1 + len(events), "Events": events}))
