"""The price list over real HTTP on the loopback: throttled, broken, then two pages; as AWS puts it on the wire."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from botocore.config import Config

from pricing.sources.aws_price_list import price_list as read_price_list
from pricing.sources.aws_session import AwsSession
from tests.support.aws_stubs import NOW, keys, product, wanted

Answer = tuple[int, dict[str, Any]]


@contextmanager
def price_list(answers: list[Answer]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A price list that gives these answers in turn; and what it was asked."""
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            status, answer = answers[len(asked) - 1]
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def test_a_throttled_price_list_is_read_to_its_end() -> None:
    answers: list[Answer] = [
        (400, {"__type": "com.amazonaws.pricing#ThrottlingException", "message": "Rate exceeded"}),
        (200, {"FormatVersion": "aws_v1", "PriceList": [product()], "NextToken": "one"}),
        (503, {"__type": "InternalErrorException"}),
        (200, {"FormatVersion": "aws_v1", "PriceList": [product("g5.xlarge", "1.006")]}),
        (200, {"FormatVersion": "aws_v1", "PriceList": []}),
    ]
    slept: list[float] = []
    with price_list(answers) as (url, asked):

        def client_for(service: str, region: str) -> Any:
            config = Config(retries={"total_max_attempts": 1})
            return keys().client(service, region_name=region, endpoint_url=url, config=config)

        with AwsSession(client_for=client_for, sleep=slept.append, jitter=lambda: 1.0) as session:
            batches = list(read_price_list(session, "us-east-1", None, wanted("on_demand", types=None), NOW, None))
    prices = [price for batch in batches for price in batch.prices]
    assert [batch.mark for batch in batches] == [[0, "one"], [1, None], None]
    assert [str(price.amount) for price in prices] == ["21.957642", "1.006"]
    assert slept == [0.5, 0.5]
    assert [call.get("NextToken") for call in asked] == [None, None, "one", "one", None]
    assert {"Type": "TERM_MATCH", "Field": "regionCode", "Value": "us-east-1"} in asked[0]["Filters"]
