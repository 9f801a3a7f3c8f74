"""The metadata services of EC2 (IMDSv2), GCP and Azure, asked at once.

Invariant: an answer that does not look like what was asked for (a login page, an error, a proxy's text) is no answer.
No proxy is used, no redirect followed, and nothing is sent but what these services define.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import httpx
import msgspec

from agent.config_file import NAME

Found = MutableMapping[str, str]
_ANSWER_BYTES_MAX = 256 * 1024
_AZURE_VERSION = "2021-02-01"
_EC2_PURCHASE = {"on-demand": "on_demand", "scheduled": "on_demand", "spot": "spot", "capacity-block": "capacity_block"}
_GCP_MODEL = {"STANDARD": "on_demand", "SPOT": "spot"}
_AZURE_PRIORITY = {"": "on_demand", "regular": "on_demand", "spot": "spot", "low": "spot"}


async def ask_all(endpoints: Mapping[str, str], answers: Mapping[str, Found], timeout_seconds: float) -> None:
    """Asks each cloud in `endpoints` (cloud -> base URL) and puts what it says into `answers[cloud]` as it comes.

    Ends when one is through and has told its instance type, when all are through, or after `timeout_seconds`.
    """
    no_trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # plain HTTP only; reading the system's certificates costs 20 ms
    async with httpx.AsyncClient(trust_env=False, verify=no_trust, timeout=timeout_seconds) as client:
        tasks = [asyncio.create_task(_cloud(client, cloud, url, answers[cloud])) for cloud, url in endpoints.items()]
        try:
            for next_through in asyncio.as_completed(tasks, timeout=timeout_seconds):
                if await next_through:
                    return
        except TimeoutError:
            return
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _cloud(client: httpx.AsyncClient, cloud: str, url: str, found: Found) -> bool:
    """Whether this is the cloud that the machine is in."""
    await _ASK[cloud](client, url, found)
    return "instance_type" in found


async def _ec2(client: httpx.AsyncClient, base: str, found: Found) -> None:
    token = await _text(client, "PUT", f"{base}/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
    if token is None or not token.isascii() or not 1 <= len(token) <= 512 or any(c.isspace() for c in token):
        return

    async def read(path: str) -> str | None:
        return await _text(client, "GET", f"{base}/latest/meta-data/{path}", {"X-aws-ec2-metadata-token": token})

    async def zone() -> str | None:
        return await read("placement/availability-zone-id") or await read("placement/availability-zone")

    await asyncio.gather(
        _put(found, "instance_type", read("instance-type"), lambda text: text if "." in text else None),
        _put(found, "region", read("placement/region")),
        _put(found, "zone", zone()),
        _put(found, "purchase", read("instance-life-cycle"), lambda text: _EC2_PURCHASE.get(text)),
        _put(found, "instance_id", read("instance-id")),
    )


async def _gcp(client: httpx.AsyncClient, base: str, found: Found) -> None:
    async def read(path: str) -> str | None:
        headers = {"Metadata-Flavor": "Google"}
        return await _text(client, "GET", f"{base}/computeMetadata/v1/instance/{path}", headers, answers_with=headers)

    async def purchase() -> str | None:
        preemptible = await read("scheduling/preemptible")
        if preemptible != "FALSE":
            return "SPOT" if preemptible == "TRUE" else None
        return await read("scheduling/provisioning-model") or "STANDARD"

    async def place() -> None:
        zone = _last(await read("zone") or "")
        _keep(found, "zone", zone)
        _keep(found, "region", zone.rpartition("-")[0])

    await asyncio.gather(
        _put(found, "instance_type", read("machine-type"), _last),
        place(),
        _put(found, "purchase", purchase(), lambda text: _GCP_MODEL.get(text)),
        _put(found, "instance_id", read("id")),
    )


async def _azure(client: httpx.AsyncClient, base: str, found: Found) -> None:
    text = await _text(client, "GET", f"{base}/metadata/instance?api-version={_AZURE_VERSION}", {"Metadata": "true"})
    document = _json(text or "{}")
    compute = document.get("compute") if isinstance(document, dict) else None
    if not isinstance(compute, dict) or "vmSize" not in compute:
        return
    for field, key in (("region", "location"), ("zone", "zone"), ("instance_id", "vmId"), ("instance_type", "vmSize")):
        _keep(found, field, compute.get(key))
    if isinstance(compute.get("priority"), str):
        _keep(found, "purchase", _AZURE_PRIORITY.get(compute["priority"].lower()))


_ASK: dict[str, Callable[[httpx.AsyncClient, str, Found], Awaitable[None]]] = {"aws": _ec2, "gcp": _gcp, "azure": _azure}


async def _put(
    found: Found, field: str, reading: Awaitable[str | None], translate: Callable[[str], str | None] = lambda text: text
) -> None:
    text = await reading
    if text is not None:
        _keep(found, field, translate(text))


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


async def _text(
    client: httpx.AsyncClient, method: str, url: str, headers: Mapping[str, str], answers_with: Mapping[str, str] = {}
) -> str | None:
    """The body of a 200 answer, without the space around it; None for anything else, or where nobody answers."""
    try:
        async with client.stream(method, url, headers=dict(headers)) as answer:
            wrong = any(answer.headers.get(name) != value for name, value in answers_with.items())
            return None if wrong or answer.status_code != 200 else await _body(answer)
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError):
        return None


async def _body(answer: httpx.Response) -> str | None:
    body = b""
    async for part in answer.aiter_bytes():
        body += part
        if len(body) > _ANSWER_BYTES_MAX:
            return None
    return body.decode("utf-8", "replace").strip()
