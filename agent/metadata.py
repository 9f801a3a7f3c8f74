"""The metadata services of EC2 (IMDSv2), GCP and Azure, asked at once.

Invariant: an answer that does not look like what was asked for (a login page, an error, a proxy's text) is no answer.
No proxy is used, no redirect followed, and nothing is sent but what these services define.

It is asked once, so it makes do with the standard library: httpx would stay in the agent's memory for ever (7 MB).
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from agent.config_file import NAME

Found = MutableMapping[str, str]
_ANSWER_BYTES_MAX = 256 * 1024
_AZURE_VERSION = "2021-02-01"
_EC2_PURCHASE = {"on-demand": "on_demand", "scheduled": "on_demand", "spot": "spot", "capacity-block": "capacity_block"}
_GCP_MODEL = {"STANDARD": "on_demand", "SPOT": "spot"}
_AZURE_PRIORITY = {"": "on_demand", "regular": "on_demand", "spot": "spot", "low": "spot"}


def ask_all(endpoints: Mapping[str, str], timeout_seconds: float) -> dict[str, dict[str, str]]:
    """Asks each cloud in `endpoints` (cloud -> base URL): cloud -> field -> value, as far as they answered. Never raises.

    Ends when one is through and has told its instance type, when all are through, or after `timeout_seconds`. Threads
    that still wait are left to end by themselves: a resolver of host names that hangs cannot be cancelled.
    """
    answers: dict[str, dict[str, str]] = {cloud: {} for cloud in endpoints}
    left, change = set(endpoints), threading.Condition()

    def ask(cloud: str, url: str) -> None:
        _ASK[cloud](_Service(url, timeout_seconds), answers[cloud])
        with change:
            left.discard(cloud)
            change.notify_all()

    def settled() -> bool:
        return not left or any("instance_type" in answers[cloud] for cloud in answers if cloud not in left)

    for cloud, url in endpoints.items():
        _start(lambda cloud=cloud, url=url: ask(cloud, url))
    with change:
        change.wait_for(settled, timeout_seconds)
    return {cloud: dict(fields) for cloud, fields in answers.items()}


class _Service:
    """One base URL. A connection per request: the requests of one cloud run side by side."""

    def __init__(self, base: str, timeout_seconds: float) -> None:
        self._base = base
        self._timeout = timeout_seconds
        self._end = time.monotonic() + timeout_seconds

    def text(
        self, path: str, headers: Mapping[str, str], *, method: str = "GET", answers_with: Mapping[str, str] = {}
    ) -> str | None:
        """The body of a 200 answer, without the space around it; None for anything else, or where nobody answers."""
        try:
            return self._exchange(method, path, headers, answers_with)
        except (OSError, http.client.HTTPException, ValueError):
            return None

    def _exchange(
        self, method: str, path: str, headers: Mapping[str, str], answers_with: Mapping[str, str]
    ) -> str | None:
        url = urlsplit(self._base)
        remaining = self._end - time.monotonic()
        if url.scheme != "http" or not url.hostname or remaining <= 0:
            return None
        connection = http.client.HTTPConnection(url.hostname, url.port or 80, timeout=remaining)
        try:
            connection.request(method, url.path.rstrip("/") + path, headers=dict(headers))
            answer = connection.getresponse()
            wrong = any(answer.headers.get(name) != value for name, value in answers_with.items())
            body = answer.read(_ANSWER_BYTES_MAX + 1)
        finally:
            connection.close()
        if wrong or answer.status != 200 or len(body) > _ANSWER_BYTES_MAX:
            return None
        return body.decode("utf-8", "replace").strip()


def _ec2(service: _Service, found: Found) -> None:
    token = service.text("/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, method="PUT")
    if not token or len(token) > 512 or any(not "!" <= character <= "~" for character in token):
        return

    def read(path: str) -> str | None:
        return service.text(f"/latest/meta-data/{path}", {"X-aws-ec2-metadata-token": token})

    def instance_type() -> None:
        text = read("instance-type")
        _keep(found, "instance_type", text if text and "." in text else None)

    _together(
        instance_type,
        lambda: _keep(found, "region", read("placement/region")),
        lambda: _keep(found, "zone", read("placement/availability-zone-id") or read("placement/availability-zone")),
        lambda: _keep(found, "purchase", _EC2_PURCHASE.get(read("instance-life-cycle") or "")),
        lambda: _keep(found, "instance_id", read("instance-id")),
    )


def _gcp(service: _Service, found: Found) -> None:
    flavour = {"Metadata-Flavor": "Google"}

    def read(path: str) -> str:
        return service.text(f"/computeMetadata/v1/instance/{path}", flavour, answers_with=flavour) or ""

    def purchase() -> None:
        preemptible = read("scheduling/preemptible")
        if preemptible == "TRUE":
            _keep(found, "purchase", "spot")
        elif preemptible == "FALSE":
            _keep(found, "purchase", _GCP_MODEL.get(read("scheduling/provisioning-model") or "STANDARD"))

    def place() -> None:
        zone = _last(read("zone"))
        _keep(found, "zone", zone)
        _keep(found, "region", zone.rpartition("-")[0])

    _together(
        lambda: _keep(found, "instance_type", _last(read("machine-type"))),
        place,
        purchase,
        lambda: _keep(found, "instance_id", read("id")),
    )


def _azure(service: _Service, found: Found) -> None:
    text = service.text(f"/metadata/instance?api-version={_AZURE_VERSION}", {"Metadata": "true"})
    document = _json(text or "{}")
    compute = document.get("compute") if isinstance(document, dict) else None
    if not isinstance(compute, dict) or "vmSize" not in compute:
        return
    for field, key in (("region", "location"), ("zone", "zone"), ("instance_id", "vmId"), ("instance_type", "vmSize")):
        _keep(found, field, compute.get(key))
    if isinstance(compute.get("priority"), str):
        _keep(found, "purchase", _AZURE_PRIORITY.get(compute["priority"].lower()))


_ASK: dict[str, Callable[[_Service, Found], None]] = {"aws": _ec2, "gcp": _gcp, "azure": _azure}


def _start(job: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=job, name="identity", daemon=True)
    thread.start()
    return thread


def _together(*jobs: Callable[[], None]) -> None:
    for thread in [_start(job) for job in jobs]:
        thread.join()


def _keep(found: Found, field: str, value: Any) -> None:
    if isinstance(value, str) and NAME.fullmatch(value):
        found[field] = value


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
