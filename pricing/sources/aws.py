"""AWS as a source of prices: on demand, reserved, savings plans, spot history and capacity blocks, per region.

Invariant: one fetch has one `now`, in every row; the order of the steps is that of the wanted regions and decides nothing
else. The price list and Savings Plans answer for all regions from one place, spot history and blocks from each region.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial

from pricing.prices import Price
from pricing.sources import NoPermission, OnProgress, Skipped, Unreachable, Wanted
from pricing.sources import aws_capacity as capacity
from pricing.sources import aws_price_list as price_list
from pricing.sources import aws_savings_plans as savings_plans
from pricing.sources import aws_spot as spot
from pricing.sources.aws_session import AwsSession
from pricing.sources.aws_shapes import types_with_blocks
from pricing.sources.aws_steps import Batch, Mark, Step, run_steps
from pricing.sources.aws_zones import Zones, read_zones

PURCHASES = price_list.PURCHASES | savings_plans.PURCHASES | {"spot", "capacity_block"}


class AwsSource:
    """`pricing.sources.Source` for AWS. The session belongs to the caller, who closes it."""

    name = "aws"
    cloud = "aws"

    def __init__(self, session: AwsSession, now: datetime, plan: savings_plans.Plan = "Compute") -> None:
        self._session = session
        self._now = now
        self._plan: savings_plans.Plan = plan
        self._zones: dict[str, Zones] = {}

    def fetch(self, wanted: Wanted, on_progress: OnProgress) -> Iterator[Price]:
        """The wanted prices, page by page. SourceFault: no key, an expired one, or nothing at all could be read."""
        return run_steps(self.steps(wanted), wanted, on_progress)

    def steps(self, wanted: Wanted) -> list[Step]:
        """One step per region and kind of price, region by region."""
        asked = frozenset(wanted.purchases)
        steps: list[Step] = []
        for region in dict.fromkeys(wanted.regions):
            if asked & price_list.PURCHASES:
                steps.append(self._step("list", "price list", region, self._price_list, wanted))
            if asked & savings_plans.PURCHASES:
                steps.append(self._step("plans", "savings plan rates", region, self._savings_plans, wanted))
            if "spot" in asked:
                steps.append(self._step("spot", "spot history", region, self._spot, wanted))
            if "capacity_block" in asked:
                steps.append(self._step("blocks", "capacity blocks", region, self._blocks, wanted))
        return steps

    def zones(self, region: str) -> Zones:
        """The zones of a region, read once."""
        if region not in self._zones:
            self._zones[region] = read_zones(self._session, region)
        return self._zones[region]

    def _step(self, kind: str, words: str, region: str, run: object, wanted: Wanted) -> Step:
        return Step(f"{kind}/{region}", f"{words} of {region}", partial(run, region, wanted))  # type: ignore[arg-type]

    def _price_list(self, region: str, wanted: Wanted, mark: Mark) -> Iterator[Batch]:
        zones, left_out = price_list.zones_or_reason(self.zones, region)
        for batch in price_list.price_list(self._session, region, zones, wanted, self._now, mark):
            yield batch if left_out is None else batch._replace(skipped=(left_out, *batch.skipped))
            left_out = None

    def _savings_plans(self, region: str, wanted: Wanted, mark: Mark) -> Iterator[Batch]:
        return savings_plans.savings_plan_rates(self._session, region, wanted, self._now, mark, self._plan)

    def _spot(self, region: str, wanted: Wanted, mark: Mark) -> Iterator[Batch]:
        return spot.spot_history(self._session, self.zones(region), wanted, self._now, mark)

    def _blocks(self, region: str, wanted: Wanted, mark: Mark) -> Iterator[Batch]:
        try:
            names = types_with_blocks(self._session, region, wanted.instance_types)
        except (NoPermission, Unreachable) as fault:
            yield Batch([], (Skipped(f"capacity blocks of {region}", str(fault)),))
            return
        yield from capacity.capacity_block_prices(self._session, self.zones(region), names, self._now, mark)
