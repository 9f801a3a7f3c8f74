"""What an error of boto3 means: one sentence with what to do, and whether trying again may help.

Invariant: an error that is not AWS's (a mistake of ours) is not turned into a fault.
"""

from __future__ import annotations

from typing import NamedTuple

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

THROTTLED = frozenset(
    {
        "BandwidthLimitExceeded", "EC2ThrottledException", "LimitExceededException", "PriorRequestNotComplete",
        "RequestLimitExceeded", "RequestThrottled", "RequestThrottledException", "SlowDown", "Throttling",
        "ThrottlingException", "ThrottledException", "TooManyRequestsException",
    }
)  # fmt: skip
EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"})
REFUSED = frozenset(
    {
        "AuthFailure", "IncompleteSignature", "InvalidAccessKeyId", "InvalidClientTokenId", "InvalidSignatureException",
        "MissingAuthenticationToken", "SignatureDoesNotMatch", "UnrecognizedClientException",
    }
)  # fmt: skip
FORBIDDEN = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedException", "UnauthorizedOperation"})
NOT_ENABLED = frozenset({"OptInRequired", "SubscriptionRequiredException"})
STALE = frozenset(
    {"ExpiredNextToken", "ExpiredNextTokenException", "InvalidNextToken", "InvalidNextTokenException", "InvalidPaginationToken"}
)
BROKEN = frozenset(
    {"InternalError", "InternalErrorException", "InternalFailure", "InternalServerException", "ServiceUnavailable"}
)
RENEW = "renew it (`aws sso login`, or the way you got it) and try again"


class Verdict(NamedTuple):
    """What an error means."""

    fault: SourceFault
    passes: bool = False
    """Whether it may pass by itself, so that another attempt makes sense."""


def judged(error: Exception, what: str, region: str) -> Verdict | None:
    """`what` names the call: `pricing GetProducts in us-east-1`. None: the error is not one of AWS or the network."""
    from botocore.exceptions import BotoCoreError, ClientError

    if isinstance(error, ClientError):
        return _answered(error, what, region)
    if isinstance(error, BotoCoreError):
        return _unanswered(error, what, region)
    return None


def _answered(error: object, what: str, region: str) -> Verdict:
    """AWS answered with an error code."""
    response: dict = getattr(error, "response", {})
    code = str(response.get("Error", {}).get("Code", "")) or "no code"
    said = " ".join(str(response.get("Error", {}).get("Message", "")).split())[:200]
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in THROTTLED or status == 429:
        return Verdict(Throttled(f"AWS refuses {what} for too many requests ({code}): wait some minutes and resume."), True)
    if code in EXPIRED:
        return Verdict(ExpiredCredentials(f"The AWS key has expired ({code}, {what}): {RENEW}; if it is new, check the clock."))
    if code in NOT_ENABLED:
        return Verdict(
            UnknownRegion(f"The account has not enabled {region} or the service ({code}, {what}): enable it, or leave it out.")
        )
    if code in REFUSED:
        return Verdict(
            RefusedCredentials(
                f"AWS does not accept the key ({code}, {what}): it is wrong, of another partition, or {region} is not enabled."
            )
        )
    if code in FORBIDDEN:
        return Verdict(
            NoPermission(
                f"The AWS key may not call {what} ({code}): allow {permission(what)} in its policy, or leave this out."
            )
        )
    if code in STALE or ("token" in said.lower() and code in ("InvalidParameterValue", "ValidationException")):
        return Verdict(
            StaleToken(f"The page at which {what} stopped is no longer known to AWS ({code}): it is read from its start.")
        )
    if code in BROKEN or status >= 500:
        return Verdict(BadAnswer(f"{what} fails on the side of AWS ({code}): try again later."), True)
    return Verdict(BadAnswer(f"{what} was refused ({code}): {said or 'no reason given'}"))


def _unanswered(error: Exception, what: str, region: str) -> Verdict:
    """No answer came: no key, no network, or something on this side."""
    from botocore import exceptions as boto

    if isinstance(error, boto.SSOError | boto.LoginError | boto.TokenRetrievalError):
        return Verdict(ExpiredCredentials(f"The AWS sign-in is not valid or has expired ({_said(error)}): {RENEW}."))
    if isinstance(error, boto.ProfileNotFound):
        return Verdict(NoCredentials(f"{_said(error)}: write the name of one in ~/.aws/config, or set none."))
    if isinstance(error, boto.NoCredentialsError | boto.NoAuthTokenError):
        return Verdict(NoCredentials("No AWS key was found: run `aws configure` (or `aws sso login`)."))
    if isinstance(error, boto.PartialCredentialsError | boto.CredentialRetrievalError | boto.MetadataRetrievalError):
        return Verdict(NoCredentials(f"The AWS key could not be read ({_said(error)}): check ~/.aws/config."))
    if isinstance(error, boto.NoRegionError | boto.InvalidRegionError):
        return Verdict(UnknownRegion(f"AWS has no region {region[:40]!r}: write one like us-east-1."))
    if isinstance(error, boto.ConnectionError | boto.HTTPClientError | boto.IncompleteReadError):
        return Verdict(
            Unreachable(
                f"{what} cannot be reached ({_said(error)}): check the network, the proxy and VPC endpoints."
            ),
            True,
        )
    return Verdict(BadAnswer(f"{what} failed: {_said(error)}"))


def permission(what: str) -> str:
    """`ec2:DescribeSpotPriceHistory` of `ec2 DescribeSpotPriceHistory in us-east-1`."""
    return ":".join(what.split()[:2])


def _said(error: Exception) -> str:
    return " ".join(str(error).split())[:200].rstrip(".")
