"""AWS on the loopback, as it is on the wire: for whole programs that boto3 sends there by AWS_ENDPOINT_URL.

Invariant: each call is answered by its name (an EC2 or STS action, a target, a path), and one that nobody laid out is refused.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from tests.support.aws_stubs import owned_row


class Wire(NamedTuple):
    """`env` makes boto3 ask here; `asked` are the names of all calls, with what they sent."""

    env: dict[str, str]
    asked: list[tuple[str, dict[str, Any]]]


@contextmanager
def wire(answers: Mapping[str, str | dict[str, Any] | list[dict[str, Any]]]) -> Iterator[Wire]:
    """Name -> XML, or JSON; a list is answered one after the other, the last for ever."""
    asked: list[tuple[str, dict[str, Any]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            name, sent = _name(self.path, self.headers.get("X-Amz-Target"), body)
            asked.append((name, sent))
            found = answers.get(name)
            if isinstance(found, list):
                found = found[min(sum(one == name for one, _ in asked), len(found)) - 1]
            status = 200 if found is not None else 400
            text = found if isinstance(found, str) else json.dumps(found or {"__type": "AccessDeniedException", "message": name})
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        env = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}", "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "none", "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        }  # fmt: skip
        try:
            yield Wire(env, asked)
        finally:
            server.shutdown()
            thread.join()


def _name(path: str, target: str | None, body: str) -> tuple[str, dict[str, Any]]:
    if target is not None:
        return target.rpartition(".")[2], json.loads(body)
    if body.startswith("{"):
        return path.strip("/"), json.loads(body)
    sent = {key: values[0] for key, values in parse_qs(body).items()}
    return sent.get("Action", path.strip("/")), sent


CALLER = (
    '<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>'
    "<Arn>arn:aws:iam::123456789012:user/u</Arn><UserId>u</UserId><Account>123456789012</Account></GetCallerIdentityResult>"
    "</GetCallerIdentityResponse>"
)
EC2 = 'xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"'
REGIONS = f"<DescribeRegionsResponse {EC2}><regionInfo><item><regionName>us-east-1</regionName></item></regionInfo></DescribeRegionsResponse>"


def reserved_xml(**change: Any) -> str:
    """One reservation as EC2 writes it."""
    row = owned_row(**change)
    cells = {
        "reservedInstancesId": row["ReservedInstancesId"], "instanceType": row["InstanceType"], "instanceCount": row["InstanceCount"],
        "start": f"{row['Start']:%Y-%m-%dT%H:%M:%S.945Z}", "end": f"{row['End']:%Y-%m-%dT%H:%M:%S.000Z}", "duration": row["Duration"],
        "fixedPrice": row["FixedPrice"], "usagePrice": row["UsagePrice"], "productDescription": row["ProductDescription"],
        "state": row["State"], "instanceTenancy": "default", "currencyCode": "USD", "offeringClass": "standard",
        "offeringType": row["OfferingType"], "scope": "Region",
    }  # fmt: skip
    told = "".join(f"<{name}>{value}</{name}>" for name, value in cells.items())
    charges = "".join(
        f"<item><frequency>{one['Frequency']}</frequency><amount>{one['Amount']}</amount></item>" for one in row["RecurringCharges"]
    )
    item = f"<item>{told}<recurringCharges>{charges}</recurringCharges></item>"
    return f"<DescribeReservedInstancesResponse {EC2}><reservedInstancesSet>{item}</reservedInstancesSet></DescribeReservedInstancesResponse>"
