"""The AWS session: retries with growing pauses, faults in words, steps that are lost alone, places to resume at."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore import exceptions as boto
from botocore.config import Config

from pricing.sources import (
    BadAnswer,
    ExpiredCredentials,
    NoCredentials,
    NoPermission,
    RefusedCredentials,
    SourceFault,
    StaleToken,
    Throttled,
    UnknownRegion,
    Unreachable,
)
from pricing.sources.aws import AwsSource
from pricing.sources.aws_session import AwsSession
from tests.support.aws_stubs import NOW, US_EAST_1, Aws, Told, keys, product, spot_row, wanted, zone_rows

SPOT = "describe_spot_price_history"
ZONES = "describe_availability_zones"


@pytest.fixture
def no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def test_what_may_pass_is_tried_again_after_growing_pauses() -> None:
    aws = Aws()
    for code, status in (
        ("RequestLimitExceeded", 503),
        ("Throttling", 400),
        ("InternalError", 500),
        ("TooManyRequestsException", 429),
    ):
        aws.refuse("ec2", ZONES, code, status=status)
    aws.lay("ec2", ZONES, zone_rows())
    client = aws.session.client("ec2", "us-east-1")
    assert len(aws.session.call(client, ZONES, {})["AvailabilityZones"]) == 3
    assert aws.slept == [0.5, 1.0, 2.0, 4.0]


def test_pauses_are_capped_and_jittered_between_half_and_all() -> None:
    low, high = AwsSession(jitter=lambda: 0.0), AwsSession(jitter=lambda: 1.0)
    assert [low.pause(attempt) for attempt in (1, 4, 20)] == [0.25, 2.0, 15.0]
    assert [high.pause(attempt) for attempt in (1, 4, 20)] == [0.5, 4.0, 30.0]


def test_a_source_that_stays_throttled_is_a_fault_and_the_fetch_can_be_resumed() -> None:
    aws, told = Aws(), Told()
    aws.lay("ec2", ZONES, zone_rows())
    aws.lay("ec2", SPOT, {"SpotPriceHistory": [spot_row("8", NOW)], "NextToken": "one"})
    for _ in range(8):
        aws.refuse("ec2", SPOT, "RequestLimitExceeded", status=503)
    fetch = AwsSource(aws.session, NOW).fetch(wanted("spot"), told)
    assert next(fetch).amount == 8
    with pytest.raises(Throttled, match="too many requests .*resume"):
        next(fetch)
    assert len(aws.slept) == 7
    again = Aws()
    again.lay("ec2", ZONES, zone_rows())
    again.lay("ec2", SPOT, {"SpotPriceHistory": [spot_row("7", NOW)], "NextToken": ""})
    (price,) = AwsSource(again.session, NOW).fetch(wanted("spot", resume=told[-1].resume), told)
    assert price.amount == 7
    assert again.asked(SPOT)[0]["NextToken"] == "one"


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        ("ExpiredToken", ExpiredCredentials, "aws sso login"),
        ("RequestExpired", ExpiredCredentials, "check the clock"),
        ("AuthFailure", RefusedCredentials, "us-east-1 is not enabled"),
        ("InvalidClientTokenId", RefusedCredentials, "does not accept the key"),
        ("UnauthorizedOperation", NoPermission, "allow ec2:DescribeAvailabilityZones in its policy"),
        ("OptInRequired", UnknownRegion, "enable it"),
        ("InvalidNextToken", StaleToken, "read from its start"),
        ("InvalidParameterCombination", BadAnswer, "refused (InvalidParameterCombination): no"),
    ],
)
def test_an_error_of_aws_is_one_sentence_with_what_to_do(code: str, kind: type[SourceFault], says: str) -> None:
    aws = Aws()
    aws.refuse("ec2", ZONES, code)
    with pytest.raises(kind) as found:
        aws.session.call(aws.session.client("ec2", "us-east-1"), ZONES, {})
    assert says in str(found.value)
    assert aws.slept == []


@pytest.mark.parametrize(
    ("error", "kind", "says", "pauses"),
    [
        (boto.NoCredentialsError(), NoCredentials, "aws configure", 0),
        (boto.PartialCredentialsError(provider="env", cred_var="aws_secret_access_key"), NoCredentials, "could not be read", 0),
        (boto.CredentialRetrievalError(provider="custom-process", error_msg="x"), NoCredentials, "could not be read", 0),
        (boto.UnauthorizedSSOTokenError(), ExpiredCredentials, "aws sso login", 0),
        (boto.TokenRetrievalError(provider="sso", error_msg="x"), ExpiredCredentials, "aws sso login", 0),
        (boto.LoginRefreshRequired(), ExpiredCredentials, "aws sso login", 0),
        (boto.EndpointConnectionError(endpoint_url="https://x"), Unreachable, "VPC endpoints", 2),
        (boto.ReadTimeoutError(endpoint_url="https://x"), Unreachable, "check the network", 2),
        (boto.ProxyConnectionError(proxy_url="http://x"), Unreachable, "proxy", 2),
    ],
)
def test_no_answer_is_one_sentence_with_what_to_do(error: Exception, kind: type[SourceFault], says: str, pauses: int) -> None:
    aws = Aws()
    client = aws.session.client("ec2", "us-east-1")

    def fails(**_: object) -> None:
        raise error

    client.describe_availability_zones = fails
    with pytest.raises(kind) as found:
        aws.session.call(client, ZONES, {})
    assert says in str(found.value)
    assert len(aws.slept) == pauses


def test_a_mistake_of_ours_is_not_dressed_as_a_fault_of_aws() -> None:
    aws = Aws()
    with pytest.raises(AttributeError):
        aws.session.call(aws.session.client("ec2", "us-east-1"), "describe_nothing", {})


def test_a_region_that_does_not_exist_is_told_before_or_after_asking() -> None:
    with pytest.raises(UnknownRegion, match="'virginia'.*write one like us-east-1"):
        AwsSession().client("ec2", "virginia")
    aws = Aws()
    client = aws.session.client("ec2", "us-esat-1")
    assert aws.session.client("ec2", "us-esat-1") is client

    def fails(**_: object) -> None:
        raise boto.EndpointConnectionError(endpoint_url="https://ec2.us-esat-1.amazonaws.com")

    client.describe_availability_zones = fails
    with pytest.raises(UnknownRegion, match="check its spelling"):
        aws.session.call(client, ZONES, {})
    assert aws.slept == []


@pytest.mark.usefixtures("no_keys")
def test_without_any_key_or_with_a_wrong_profile_nothing_is_asked() -> None:
    with AwsSession() as session, pytest.raises(NoCredentials, match="aws configure") as none:
        list(AwsSource(session, NOW).fetch(wanted("spot"), Told()))
    assert "price" not in str(none.value), "a key is missing for more than prices"
    with AwsSession("nobody") as session, pytest.raises(NoCredentials, match="nobody.*~/.aws/config"):
        list(AwsSource(session, NOW).fetch(wanted("spot"), Told()))


@pytest.fixture
def closed_port() -> Iterator[str]:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def test_a_real_connection_that_is_refused_is_unreachable(closed_port: str) -> None:
    def client_for(service: str, region: str) -> object:
        config = Config(connect_timeout=1, retries={"total_max_attempts": 1})
        return keys().client(service, region_name=region, endpoint_url=closed_port, config=config)

    slept: list[float] = []
    with AwsSession(client_for=client_for, sleep=slept.append) as session, pytest.raises(Unreachable):
        session.call(session.client("ec2", "us-east-1"), ZONES, {})
    assert len(slept) == 2


def test_a_token_that_comes_twice_ends_in_a_fault_and_not_in_an_endless_loop() -> None:
    aws = Aws()
    for token in ("one", "two", "one"):
        aws.lay("pricing", "get_products", {"PriceList": [], "NextToken": token})
    client = aws.session.pricing_client("us-east-1")
    with pytest.raises(BadAnswer, match="same next page twice"):
        list(aws.session.pages(client, "get_products", {"ServiceCode": "AmazonEC2"}))


def test_one_lost_step_does_not_lose_the_others() -> None:
    aws, told = Aws(), Told()
    aws.lay("ec2", ZONES, zone_rows(US_EAST_1._replace(zones=US_EAST_1.zones[:1])))
    aws.refuse("pricing", "get_products", "AccessDeniedException")
    aws.lay("ec2", SPOT, {"SpotPriceHistory": [spot_row("8", NOW)]})
    (price,) = AwsSource(aws.session, NOW).fetch(wanted("on_demand", "spot"), told)
    assert price.purchase == "spot"
    assert told.skipped[0][0] == "price list of us-east-1"
    assert "allow pricing:GetProducts" in told.skipped[0][1]
    assert [(progress.done, progress.total) for progress in told] == [(1, 2), (2, 2)]


def test_when_every_step_is_lost_the_first_fault_is_told() -> None:
    aws, told = Aws(), Told()
    aws.lay("ec2", ZONES, zone_rows())
    aws.refuse("pricing", "get_products", "AccessDeniedException")
    aws.refuse("ec2", SPOT, "UnauthorizedOperation")
    with pytest.raises(NoPermission, match="pricing:GetProducts"):
        list(AwsSource(aws.session, NOW).fetch(wanted("on_demand", "spot"), told))


@pytest.mark.parametrize("resume", ["{", "[]", '{"version": 9}', None])
def test_a_place_of_another_fetch_is_refused(resume: str | None) -> None:
    aws, told = Aws(), Told()
    if resume is None:
        aws.lay("ec2", ZONES, zone_rows(US_EAST_1._replace(zones=US_EAST_1.zones[:1])))
        aws.lay("pricing", "get_products", {"PriceList": [product()]})
        fetch = AwsSource(aws.session, NOW).fetch(wanted("on_demand", "spot"), told)
        next(fetch)
        aws.lay("pricing", "get_products", {"PriceList": []})
        aws.lay("ec2", SPOT, {"SpotPriceHistory": [spot_row("8", NOW)]})
        next(fetch)
        resume = told[-1].resume
    other = wanted("on_demand", "spot", types=frozenset({"g5.xlarge"}), resume=resume)
    with pytest.raises(StaleToken, match="anew"):
        list(AwsSource(aws.session, NOW).fetch(other, told))
