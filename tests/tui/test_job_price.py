"""What a job without a GPU costs an hour is what a report comes to."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import msgspec
import pytest

from agent import wire
from agent.meter_cpu import CpuClaim
from pricing.weights import GIB, Weights
from tests.pricing.test_cpu_use import EVEN, an_hour_of, node, report
from tests.support.metering import ANN, INFO, gpu
from tui.job_price import part_of, without_gpu

PRICE = Decimal(10)
NODE = msgspec.structs.replace(INFO, cpu_count=8, memory_total_bytes=32 * GIB)


def job(**fields: object) -> wire.JobSpec:
    return wire.JobSpec(command=("x",), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(("cpus", "gib"), [(4, 8), (8, 32), (100, 1000), (None, 0)])
def test_the_price_before_a_run_is_the_cost_of_the_report_after_it(cpus: int | None, gib: int) -> None:
    claim = CpuClaim("eve", "data", "prep", 500 if cpus is None else cpus * 1000, gib * GIB)
    with an_hour_of(node(), gpu(0, ANN), cpu=(claim,)) as ledger:
        (told,) = [row.allocated_cost for row in report(ledger, "job").rows if row.keys == ("prep",)]
    spec = job(cpus=None if cpus is None else Decimal(cpus), memory_bytes=gib * GIB or None)
    with_one = msgspec.structs.replace(NODE, gpus=(wire.GpuInventory(index=0, uuid="GPU-0"),))
    assert part_of(spec, with_one, PRICE, EVEN.weights) == told


def test_what_is_not_known_has_no_price_and_a_job_with_a_gpu_is_priced_by_the_agent() -> None:
    assert part_of(job(), msgspec.structs.replace(NODE, cpu_count=None), PRICE, Weights()) is None
    assert part_of(job(), NODE, None, Weights()) is None
    assert part_of(job(), NODE, PRICE, Weights(Fraction(1), Fraction(0), Fraction(0))) in (None, 0)
    assert without_gpu(job()) and not without_gpu(job(gpus=1)) and not without_gpu(job(gpu_share=Decimal("0.5")))
