"""One AWS session for all calls: boto3's own credential chain, pages to the end, retries, and faults in words.

Invariant: a call either gives a whole answer or raises a SourceFault; what may pass (throttling, a broken line, a 5xx) is
tried again with growing, jittered pauses. boto3 is imported when the first client is made, never before.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from pricing.sources import BadAnswer, SourceFault, UnknownRegion, Unreachable
from pricing.sources.aws_faults import Verdict, judged

if TYPE_CHECKING:
    import boto3

Answer = dict[str, Any]
ATTEMPTS = 8
CONNECT_ATTEMPTS = 3
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
MOST_PAGES = 100_000
PRICING_REGIONS = {"aws": ("us-east-1", "eu-central-1", "ap-south-1"), "aws-cn": ("cn-northwest-1",)}
"""Where the price list answers; each of them knows all regions of its partition."""
GLOBAL_REGIONS = {"aws": "us-east-1", "aws-cn": "cn-northwest-1"}
"""Where Savings Plans and Cost Explorer answer."""
CURRENCIES = {"aws-cn": "CNY", "aws-eusc": "EUR"}


class Tokens(NamedTuple):
    """How a call pages: the key that asks for the next page, and the key of the answer that names it."""

    asked: str = "NextToken"
    told: str = "NextToken"


NEXT_TOKEN = Tokens()


class Page(NamedTuple):
    """One answer, and the token of the next; None at the end."""

    answer: Answer
    token: str | None


class AwsSession:
    """Clients by service and region, and calls on them. `client_for` and `sleep` are seams for tests."""

    def __init__(
        self,
        profile: str | None = None,
        *,
        client_for: Callable[[str, str], Any] | None = None,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
        attempts: int = ATTEMPTS,
    ) -> None:
        self._profile = profile
        self._client_for = client_for or self._boto_client
        self._sleep = sleep
        self._jitter = jitter
        self._attempts = attempts
        self._session: boto3.session.Session | None = None
        self._clients: dict[tuple[str, str], Any] = {}

    def client(self, service: str, region: str) -> Any:
        """The client of a service in a region, made once. UnknownRegion, NoCredentials (a profile that does not exist)."""
        self.partition(region)
        key = (service, region)
        if key not in self._clients:
            try:
                self._clients[key] = self._client_for(service, region)
            except Exception as error:
                raise _fault(error, f"{service} in {region}", region) from error
        return self._clients[key]

    def pricing_client(self, region: str) -> Any:
        """The price list's client for prices of `region`: the partition's own endpoint."""
        return self.client("pricing", PRICING_REGIONS.get(self.partition(region), ("us-east-1",))[0])

    def global_client(self, service: str, region: str = "us-east-1") -> Any:
        """Savings Plans (`savingsplans`) or Cost Explorer (`ce`) of the partition that `region` is in."""
        return self.client(service, GLOBAL_REGIONS.get(self.partition(region), region))

    def partition(self, region: str) -> str:
        """`aws`, `aws-cn`, ... UnknownRegion when no partition has names like it."""
        from botocore.exceptions import UnknownRegionError

        try:
            return self._boto().get_partition_for_region(region)
        except UnknownRegionError:
            raise UnknownRegion(
                f"AWS has no region {region[:40]!r}: write one like us-east-1 (not a zone, not a city)."
            ) from None
        except Exception as error:
            raise _fault(error, "the AWS configuration", region) from error

    def currency(self, region: str) -> str:
        """In which currency the partition of `region` publishes its prices."""
        return CURRENCIES.get(self.partition(region), "USD")

    def is_known(self, region: str) -> bool:
        """Whether this version of botocore lists the region; a new one may be missing."""
        return region in self._boto().get_available_regions("ec2", self.partition(region))

    def call(self, client: Any, operation: str, arguments: Answer, before: Callable[[], None] | None = None) -> Answer:
        """One answer. `before` runs ahead of every attempt, and may refuse by raising. SourceFault: see the tree."""
        region = client.meta.region_name
        for attempt in range(1, self._attempts + 1):
            if before is not None:
                before()
            try:
                return getattr(client, operation)(**arguments)
            except SourceFault:
                raise
            except Exception as error:
                found = judged(error, _words(client, operation), region)
                if found is None:
                    raise
                if attempt >= self._most_attempts(found, region):
                    raise self._last(found, region) from error
                self._sleep(self.pause(attempt))
        raise AssertionError("unreachable")

    def pages(
        self,
        client: Any,
        operation: str,
        arguments: Answer,
        tokens: Tokens = NEXT_TOKEN,
        start: str | None = None,
        before: Callable[[], None] | None = None,
    ) -> Iterator[Page]:
        """All answers, from the page `start` on: until the token is falsy, also over empty pages.

        BadAnswer when a token comes twice: the answer would never end.
        """
        token, seen = start, set[str]()
        for _ in range(MOST_PAGES):
            asked = {**arguments, tokens.asked: token} if token else arguments
            answer = self.call(client, operation, asked, before)
            token = answer.get(tokens.told) or None
            yield Page(answer, token)
            if token is None:
                return
            if token in seen:
                break
            seen.add(token)
        raise BadAnswer(
            f"{_words(client, operation)} names the same next page twice: the answer does not end. Try again later."
        )

    def pause(self, attempt: int) -> float:
        """Seconds before the next attempt: doubled each time, capped, and between half and all of it at random."""
        most = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** (attempt - 1))
        return most * (0.5 + self._jitter() / 2)

    def close(self) -> None:
        """Closes the connections of all clients."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def __enter__(self) -> AwsSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _most_attempts(self, found: Verdict, region: str) -> int:
        if not found.passes:
            return 1
        if isinstance(found.fault, Unreachable):
            return min(self._attempts, CONNECT_ATTEMPTS if self.is_known(region) else 1)
        return self._attempts

    def _last(self, found: Verdict, region: str) -> SourceFault:
        if isinstance(found.fault, Unreachable) and not self.is_known(region):
            return UnknownRegion(f"AWS in {region!r} does not answer, and no region of this name is known: check its spelling.")
        return found.fault

    def _boto(self) -> boto3.session.Session:
        if self._session is None:
            import boto3.session
            from botocore.exceptions import BotoCoreError

            try:
                self._session = boto3.session.Session(profile_name=self._profile)
            except BotoCoreError as error:
                raise _fault(error, "the AWS configuration", "") from error
        return self._session

    def _boto_client(self, service: str, region: str) -> Any:
        from botocore.config import Config

        config = Config(connect_timeout=5, read_timeout=60, retries={"total_max_attempts": 1, "mode": "standard"})
        return self._boto().client(service, region_name=region, config=config)


def _fault(error: Exception, what: str, region: str) -> Exception:
    found = judged(error, what, region)
    return error if found is None else found.fault


def _words(client: Any, operation: str) -> str:
    """`pricing GetProducts in us-east-1`."""
    name = client.meta.method_to_api_mapping.get(operation, operation)
    return f"{client.meta.service_model.service_name} {name} in {client.meta.region_name}"
