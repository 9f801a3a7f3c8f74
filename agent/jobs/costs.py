"""What a job costs: the node's price, by the part of its GPUs that the job holds, by the time that it holds them.

Invariant: exact decimals from the price to the sum; a price that is not known makes a cost that is not known, never 0.
"""

from __future__ import annotations

from decimal import Context, Decimal, InvalidOperation

WHOLE = 1_000_000
"""A whole GPU, in millionths."""
HELD = "held_ms"
"""Note of a job of which only the place is held: since when, by the clock that its cost is counted by."""
_EXACT = Context(prec=60)
_PLACES = Decimal("0.000000001")
_MS_PER_HOUR = 3_600_000


def price(configured: str | None, asked: Decimal | None) -> Decimal | None:
    """The node's US dollars per hour: what the job's sender knows, else the agent's own configuration.

    In this order, because the sender weighs the catalog against that configuration as every report does.
    """
    for value in (asked, configured):
        if value is None:
            continue
        try:
            known = Decimal(value)
        except InvalidOperation:
            continue
        if known.is_finite() and known > 0:
            return known
    return None


def millionths(gpus: int, share: Decimal | None) -> int:
    """What a job holds, in millionths of a GPU."""
    return gpus * WHOLE if share is None else int(_EXACT.multiply(share, Decimal(WHOLE)))


def usd_per_hour(node: Decimal | None, held: int, gpu_count: int) -> Decimal | None:
    """`held` millionths of the node's `gpu_count` GPUs. None for a job without a GPU: reports know what its processors are worth."""
    if node is None or gpu_count <= 0 or not held:
        return None
    return _rounded(_EXACT.divide(_EXACT.multiply(node, Decimal(held)), Decimal(gpu_count * WHOLE)))


def cost(node: Decimal | None, held: int, gpu_count: int, milliseconds: int) -> Decimal | None:
    """US dollars for holding so much for so long, to a billionth; None like `usd_per_hour`."""
    if node is None or gpu_count <= 0 or not held:
        return None
    amount = _EXACT.multiply(_EXACT.multiply(node, Decimal(held)), Decimal(max(0, milliseconds)))
    return _rounded(_EXACT.divide(amount, Decimal(gpu_count * WHOLE * _MS_PER_HOUR)))


def seconds_until_stop(budget: Decimal, spent: Decimal, rate: Decimal, grace_seconds: float) -> float:
    """Seconds from the start of an attempt until its soft stop, so that the grace ends when the budget does.

    The stop is asked for one grace ahead of the moment at which the money is gone, at most half of the time that it buys:
    a job that uses its whole grace has then cost its budget, and one that ends sooner has cost less.
    """
    if rate <= 0:
        return float("inf")
    lasts = float(_EXACT.divide(_EXACT.subtract(budget, spent), rate)) * 3600
    return max(0.0, lasts - min(grace_seconds, lasts / 2))


def total(*parts: Decimal | None) -> Decimal | None:
    """The sum of what is known; None where one part is not."""
    if not parts or None in parts:
        return None
    result = Decimal(0)
    for part in parts:
        assert part is not None
        result = _EXACT.add(result, part)
    return result


def _rounded(value: Decimal) -> Decimal:
    plain = value.quantize(_PLACES, context=_EXACT).normalize(_EXACT)
    return plain if plain.as_tuple().exponent <= 0 else plain.quantize(Decimal(1), context=_EXACT)
