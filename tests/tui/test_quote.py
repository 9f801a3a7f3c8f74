"""What a job would cost, and what else there is: exact, by the catalog, and nothing made up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from agent import wire
from pricing.budgets import Budget, BudgetState
from pricing.catalog import Catalog
from pricing.forecast import Forecast
from pricing.money import Money
from tests.support.fleets import AT, GIB, gpu, idle_gpu, put
from tests.support.jobs import ended, job, tell
from tui.fleet import Fleet
from tui.quote import BudgetLeft, Measured, Quote, budget_left, jobs_of, measured, memory_seen, place_of, quote, types_of
from tui.quote_text import lines, record

CATALOG = Catalog.embedded()
COMMAND = ("python", "train.py")


def fleet_of(**fields: Any) -> Fleet:
    fleet = Fleet(CATALOG)
    put(fleet, "gpu-01", tuple(idle_gpu(i, node="gpu-01") for i in range(8)), **fields)
    return fleet


def quoted(spec: dict[str, Any], fleet: Fleet | None = None, plan: dict[str, Any] | None = None, **more: Any) -> Quote:
    fleet = fleet or fleet_of()
    view = fleet["gpu-01"]
    job_spec = wire.JobSpec(**{"command": COMMAND, **spec})  # type: ignore[arg-type]
    part = Fraction(job_spec.gpu_share) if job_spec.gpu_share is not None else Fraction(job_spec.gpus)
    usd = None if view.usd_per_hour is None or not part else view.usd_per_hour * part / 8
    answer = wire.JobPlan(
        node="gpu-01", **{"starts_now": True, "reason": "", "argv": COMMAND, "environment": (), "user": "ada", "enforcement": "v2",
                          "usd_per_hour": None if usd is None else Decimal(usd.numerator) / Decimal(usd.denominator), **(plan or {})}  # type: ignore[arg-type]
    )  # fmt: skip
    return quote(job_spec, answer, place_of(view), CATALOG, **more)


def kinds(found: Quote) -> list[str]:
    return [one.kind for one in found.alternatives]


def test_two_of_eight_gpus_cost_a_quarter_of_the_node_and_the_limit_is_the_most() -> None:
    found = quoted({"gpus": 2, "time_limit_seconds": 8 * 3600.0})
    node = CATALOG.quote("aws", "us-east-1", "use1-az1", "p4d.24xlarge", "on_demand").price
    assert node is not None and found.usd_per_hour == node.fraction / 4
    assert found.usd == found.most_usd == node.fraction * 2 and found.basis == "limit"
    assert found.gpus == "2 of 8 A100"
    shown = "\n".join(lines(found))
    assert "would run on   gpu-01: 2 of 8 A100" in shown and "starts at once" in shown and "by its time limit of 8h00m" in shown


def test_a_run_of_before_counts_more_than_the_limit_and_never_beyond_it() -> None:
    before = Measured(3, Fraction(9000), Fraction(8000), Fraction(9500))
    found = quoted({"gpus": 2, "time_limit_seconds": 8 * 3600.0}, before=before)
    assert found.basis == "measured" and found.usd == (found.usd_per_hour or 0) * Fraction(9000, 3600)
    assert "the 3 runs before took 2h30m (2h13m to 2h38m)" in "\n".join(lines(found))
    assert quoted({"gpus": 2, "time_limit_seconds": 3600.0}, before=before).seconds == 3600


def test_only_runs_of_the_same_command_that_ended_well_are_measured() -> None:
    fleet = fleet_of()
    put(fleet, "other", (idle_gpu(0, node="other"),))
    spec = wire.JobSpec(command=COMMAND, gpus=2)
    ran = {"command": COMMAND, "started_at": AT - timedelta(hours=4)}
    tell(
        fleet, ended(1, **ran), ended(2, **{**ran, "started_at": AT - timedelta(hours=3)}), ended(3, "oom", **ran),
        ended(4, **{**ran, "command": ("python", "x.py")}), ended(5, gpus_wanted=1, **ran), job(6, **ran),
        ended(7, node="other", **{**ran, "started_at": AT - timedelta(hours=9)}),
    )  # fmt: skip
    found = measured(jobs_of(fleet), spec, "NVIDIA A100-SXM4-40GB")
    assert found is not None and (found.runs, found.shortest, found.middle, found.longest) == (3, 3600, 7200, 25_200)
    other = measured(jobs_of(fleet), spec, "NVIDIA H100 80GB HBM3")
    assert other is not None and other.elsewhere and "on other GPUs" in "\n".join(lines(quoted({"gpus": 2}, before=other)))
    assert measured(jobs_of(fleet), wire.JobSpec(command=("nothing",)), None) is None


def test_without_limit_and_history_what_it_costs_in_all_is_not_known() -> None:
    found = quoted({"gpus": 8})
    assert (found.usd, found.most_usd, found.basis) == (None, None, None)
    assert all(one.usd is None and one.usd_per_hour > 0 for one in found.alternatives)
    assert "expected       not known: no time limit is set" in "\n".join(lines(found))
    assert record(found)["expected_usd"] is None


def test_its_own_budget_bounds_what_it_can_cost() -> None:
    found = quoted({"gpus": 2, "time_limit_seconds": 8 * 3600.0, "budget_usd": Decimal("3.5")})
    assert found.most_usd == Fraction("3.5") and "$3.50, by its budget, which ends it before" in "\n".join(lines(found))
    assert quoted({"gpus": 2, "budget_usd": Decimal(7)}).most_usd == 7


def test_spot_is_priced_by_the_catalog_and_reckons_with_interruptions() -> None:
    from pricing.advice_spot import cost_of_work
    from pricing.advice_spot_risk import bucket_of, bucket_risk

    found = quoted({"gpus": 2, "time_limit_seconds": 3600.0})
    spot = next(one for one in found.alternatives if one.kind == "spot")
    price = CATALOG.quote("aws", "us-east-1", "use1-az1", "p4d.24xlarge", "spot").price
    normal = CATALOG.quote("aws", "us-east-1", "use1-az1", "p4d.24xlarge", "on_demand").price
    assert price is not None and normal is not None and spot.usd_per_hour == price.fraction / 4
    risk = bucket_risk(bucket_of("aws", "us-east-1", "p4d.24xlarge"))
    assert spot.usd == cost_of_work(price.fraction, normal.fraction, risk, 0.45) / 4
    assert spot.usd > spot.usd_per_hour and any("taken away" in one for one in spot.against)
    assert any("not marked as interruptible" in one for one in spot.against)
    assert not any("not marked" in one for one in quoted({"gpus": 2, "interruptible": True}).alternatives[0].against)
    back = quoted({"gpus": 2}, fleet_of(purchase="spot")).alternatives[0]
    assert back.kind == "on_demand" and back.usd_per_hour == normal.fraction / 4


def test_other_types_have_the_gpus_and_are_marked_where_their_speed_is_scaled() -> None:
    found = quoted({"gpus": 4, "time_limit_seconds": 3600.0})
    types = [one for one in found.alternatives if one.kind == "type"]
    assert len(types) == 3 and [one.usd for one in types] == sorted(one.usd or 0 for one in types)
    for one in types:
        shape = CATALOG.instance(one.cloud, one.instance_type)
        assert shape is not None and (shape.gpu_count or 0) >= 4 and (shape.gpu_memory_bytes or 0) >= 0.95 * 40 * GIB
        assert one.instance_type != "p4d.24xlarge"
        offers = CATALOG.offers(one.cloud, one.region, None, one.instance_type, purchase="on_demand")
        assert one.usd_per_hour == min(offer.price.fraction for offer in offers if offer.price), "the whole machine is paid"
        if one.scaled:
            assert one.seconds != 3600 and any("not measured" in text for text in one.against)
        else:
            assert shape.gpu_model == "A100" and one.seconds == 3600
        if (shape.gpu_count or 0) > 4:
            assert any("GPUs are paid, and 4 are used" in text for text in one.against)


def test_a_type_that_the_fleet_has_is_named_with_its_node() -> None:
    put(fleet := fleet_of(), "big", (idle_gpu(0, node="big"),), instance_type="p5en.48xlarge")
    found = quoted({"gpus": 8}, fleet, of_types=types_of(fleet))
    told = {one.instance_type: " ".join(one.against) for one in found.alternatives if one.kind == "type"}
    assert "big in the fleet is of this type" in told.pop("p5en.48xlarge")
    assert all("No node of the fleet" in text for text in told.values())


def test_half_of_a_gpu_is_offered_where_it_fits_and_the_node_would_take_it() -> None:
    one = next(each for each in quoted({"gpus": 1, "time_limit_seconds": 3600.0}).alternatives if each.kind == "share")
    assert one.usd_per_hour * 2 == quoted({"gpus": 1}).usd_per_hour and one.usd == one.usd_per_hour
    assert any("20.0G" in text and "not known" in text for text in one.against)
    assert "share" in kinds(quoted({"gpus": 1}, gpu_memory_seen=15 * GIB))
    assert "share" not in kinds(quoted({"gpus": 1}, gpu_memory_seen=31 * GIB))
    assert "share" not in kinds(quoted({"gpus": 1}, share_refused="MPS cannot work here"))
    assert "share" not in kinds(quoted({"gpus": 2}))


def test_memory_that_the_same_command_holds_is_seen_on_the_gpus() -> None:
    fleet = fleet_of()
    put(fleet, "busy", (gpu(0, node="busy", users=("ada",)),))
    tell(fleet, job(4711, node="busy", id="4711", command=COMMAND))
    assert memory_seen(fleet, wire.JobSpec(command=COMMAND)) == 30 * GIB
    assert memory_seen(fleet, wire.JobSpec(command=("x",))) is None


def test_a_node_of_our_own_has_no_spot_but_other_types_by_the_gpu_that_its_driver_names() -> None:
    fleet = fleet_of(cloud="on_premises", region=None, zone=None, instance_type=None, purchase=None, usd_per_hour="8.00")
    found = quoted({"gpus": 2, "time_limit_seconds": 3600.0}, fleet)
    assert found.usd == 2 and kinds(found) == ["type"] * 3 and found.gpus == "2 of 8 A100"
    assert any("another cloud" in text for text in found.alternatives[0].against)
    assert kinds(quoted({"gpus": 2}, fleet_of(cloud="on_premises", instance_type=None, usd_per_hour=None))) == ["type"] * 3


def test_a_job_without_a_gpu_is_priced_by_its_part_and_has_no_alternatives() -> None:
    found = quoted({"cpus": Decimal(8), "memory_bytes": 64 * GIB, "time_limit_seconds": 3600.0}, fleet_of(memory_total_bytes=1152 * GIB))
    assert found.usd_per_hour is not None and 0 < found.usd_per_hour < 1 and found.usd == found.usd_per_hour
    assert found.alternatives == () and found.gpus == ""


def test_an_unknown_price_stays_unknown() -> None:
    found = quoted({"gpus": 2, "time_limit_seconds": 3600.0}, fleet_of(instance_type="p9.odd"))
    assert found.usd_per_hour is None and found.usd is None and "its price is not known" in "\n".join(lines(found))
    assert record(found)["usd_per_hour"] is None


def state(spent: str, project: str = "vision", *, complete: bool = True) -> BudgetState:
    start = datetime(2026, 11, 1, tzinfo=UTC)
    return BudgetState(
        Budget("team", Money.parse("2000", "USD"), "project", project), "2026-11", start, start + timedelta(days=30), AT,
        Fraction(spent), complete, Forecast(None, None, None), (), None,
    )  # fmt: skip


def test_the_tightest_budget_of_the_project_says_what_is_left() -> None:
    left = budget_left([state("500"), state("1990"), state("1", "nlp")], "vision")
    assert left == BudgetLeft("team", Fraction(10), Fraction(2000), "USD", True)
    found = quoted({"gpus": 2, "time_limit_seconds": 8 * 3600.0}, budget=left)
    assert found.over_budget and "$10.00 left of $2,000.00 this month; this is more than is left" in "\n".join(lines(found))
    assert budget_left([state("1")], None) is None and budget_left([state("1")], "other") is None
    unknown = budget_left([state("0", complete=False)], "vision")
    assert unknown is not None and unknown.left is None and "is not known" in "\n".join(lines(quoted({"gpus": 2}, budget=unknown)))


def test_json_has_every_key_and_money_as_strings() -> None:
    found = record(quoted({"gpus": 1, "time_limit_seconds": 3600.0}))
    assert found.keys() == {"usd_per_hour", "expected_usd", "expected_seconds", "expected_from", "calibration", "limit_seconds", "most_usd",
                            "measured", "budget", "alternatives"}  # fmt: skip
    for one in found["alternatives"]:
        assert isinstance(one["usd_per_hour"], str) and Decimal(one["usd_per_hour"]) > 0 and one["against"] is not None
        assert one["kind"] == "share" or one["as_of"]


@pytest.mark.parametrize("reason", ["waits for 2 GPUs"])
def test_a_job_that_waits_says_so_and_why(reason: str) -> None:
    shown = "\n".join(lines(quoted({"gpus": 2}, plan={"starts_now": False, "reason": reason})))
    assert ", waits" in shown and reason in shown
