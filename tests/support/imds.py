"""Stand-in for the metadata services of EC2 (IMDSv2), GCP and Azure, on loopback.

Invariant: as on a real machine, one service answers as one cloud; the paths of the others are 404. Status codes and
headers of the EC2 part follow amazon-ec2-metadata-mock, those of GCP and Azure their public documentation.

`values`, `faults`, `tokens` and `events` may be changed while it runs; a question that waits for a change sees it.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

Cloud = Literal["ec2", "gcp", "azure"]
Fault = int | Literal["hang", "drop", "garbage"]

EC2: dict[str, str] = {
    "instance-type": "p4d.24xlarge",
    "instance-id": "i-0123456789abcdef0",
    "instance-life-cycle": "spot",
    "placement/availability-zone": "us-east-1a",
    "placement/availability-zone-id": "use1-az1",
    "placement/region": "us-east-1",
}
GCP: dict[str, str] = {
    "instance/scheduling/preemptible": "FALSE",
    "instance/id": "1234567890123456789",
    "instance/machine-type": "projects/123456789012/machineTypes/a2-highgpu-8g",
    "instance/zone": "projects/123456789012/zones/us-central1-a",
    "instance/preempted": "FALSE",
    "instance/maintenance-event": "NONE",
}
AZURE: dict[str, Any] = {
    "vmSize": "Standard_ND96asr_v4",
    "location": "eastus",
    "zone": "1",
    "priority": "Spot",
    "vmId": "02aab8a4-74ef-476e-8182-f6d2ba4166a6",
    "name": "node-1",
}
_VALUES: dict[str, dict[str, Any]] = {"ec2": EC2, "gcp": GCP, "azure": AZURE}


class MetadataService(ThreadingHTTPServer):
    """Serves one cloud. `values` replace the defaults (None: absent); `faults` maps a path's beginning to what goes wrong."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, cloud: Cloud | None, values: Mapping[str, Any] = {}, faults: Mapping[str, Fault] = {}) -> None:
        merged = {**_VALUES.get(cloud or "", {}), **values}
        self.cloud = cloud
        self.values = {key: value for key, value in merged.items() if value is not None}
        self.faults = dict(faults)
        self.tokens: set[str] = set()
        self.requests: list[str] = []
        self.events: list[dict[str, Any]] = []
        """Azure's scheduled events; `incarnation` is set by hand."""
        self.incarnation = 1
        self.approved: list[str] = []
        self.released = threading.Event()
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that ran out of patience is no fault of the service."""


@contextmanager
def metadata_service(
    cloud: Cloud | None, values: Mapping[str, Any] = {}, *, faults: Mapping[str, Fault] = {}
) -> Iterator[MetadataService]:
    """A running service; None answers 404 to everything."""
    service = MetadataService(cloud, values, faults)
    thread = threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield service
    finally:
        service.released.set()
        service.shutdown()
        service.server_close()
        thread.join(60)


class _Handler(BaseHTTPRequestHandler):
    server: MetadataService
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        self.server.requests.append(f"{self.command} {url.path}")
        if not self._fault(url.path):
            answer = {"ec2": self._ec2, "gcp": self._gcp, "azure": self._azure}.get(self.server.cloud or "", self._nothing)
            answer(url.path, {key: value[0] for key, value in parse_qs(url.query).items()})

    do_PUT = do_POST = do_GET

    def _fault(self, path: str) -> bool:
        for beginning, fault in list(self.server.faults.items()):  # the test may change them meanwhile
            if not path.startswith(beginning):
                continue
            if fault == "garbage":
                self._reply(200, "<html>\r\n<h1>Please log in</h1>", Metadata_Flavor="Google")
            elif isinstance(fault, int):
                self._reply(fault)
            else:
                if fault == "hang":
                    self.server.released.wait(600)
                self.close_connection = True
            return True
        return False

    def _reply(self, status: int, body: str = "", **headers: str) -> None:
        data = body.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def _nothing(self, path: str, query: Mapping[str, str]) -> None:
        self._reply(404)

    def _ec2(self, path: str, query: Mapping[str, str]) -> None:
        if path == "/latest/api/token":
            return self._ec2_token()
        if self.headers.get("X-aws-ec2-metadata-token") not in self.server.tokens:
            return self._reply(401)
        self._value(path.removeprefix("/latest/meta-data/"))

    def _ec2_token(self) -> None:
        seconds = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
        if self.command != "PUT":
            return self._reply(405)
        if self.headers.get("X-Forwarded-For"):
            return self._reply(403)
        if not seconds.isdigit() or not 1 <= int(seconds) <= 21600:
            return self._reply(400)
        token = secrets.token_urlsafe(40) + "=="
        self.server.tokens.add(token)
        self._reply(200, token, X_aws_ec2_metadata_token_ttl_seconds=seconds)

    def _gcp(self, path: str, query: Mapping[str, str]) -> None:
        if not path.startswith("/computeMetadata/v1/"):
            return self._reply(404)
        if self.headers.get("Metadata-Flavor") != "Google" or self.headers.get("X-Forwarded-For"):
            return self._reply(403)
        key = path.removeprefix("/computeMetadata/v1/")
        if query.get("wait_for_change") == "true":
            self._wait_for_change(key, query)
        self._value(key, Metadata_Flavor="Google", ETag=_etag(self.server.values.get(key)))

    def _wait_for_change(self, key: str, query: Mapping[str, str]) -> None:
        end = time.monotonic() + float(query.get("timeout_sec", 3600))
        seen = query.get("last_etag") or _etag(self.server.values.get(key))
        while _etag(self.server.values.get(key)) == seen and time.monotonic() < end and not self.server.released.wait(0.01):
            pass

    def _azure(self, path: str, query: Mapping[str, str]) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Metadata", "").lower() != "true" or "api-version" not in query:
            return self._reply(400, '{"error": "Bad request. Required metadata header not specified"}')
        if path == "/metadata/instance":
            return self._reply(200, json.dumps({"compute": self.server.values}), Content_Type="application/json")
        if path == "/metadata/instance/compute/name":
            return self._reply(200, self.server.values["name"]) if "name" in self.server.values else self._reply(404)
        if path != "/metadata/scheduledevents":
            return self._reply(404)
        if self.command == "POST":
            self.server.approved += [one["EventId"] for one in json.loads(body)["StartRequests"]]
            return self._reply(200)
        document = {"DocumentIncarnation": self.server.incarnation, "Events": self.server.events}
        self._reply(200, json.dumps(document), Content_Type="application/json")

    def _value(self, key: str, **headers: str) -> None:
        value = self.server.values.get(key)
        self._reply(404, **headers) if value is None else self._reply(200, value, **headers)


def _etag(value: object) -> str:
    return hashlib.sha256(str(value).encode()).hexdigest()[:16]
