"""What curves come to in money, worked by hand, and what is drawn and printed of them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from agent import wire
from pricing.weights import GIB, Weights
from tests.support.cli import Done, rackrate_here
from tests.support.job_service import JobService
from tests.support.job_site import job_site
from tests.support.jobs import job
from tui.curves import (
    Run,
    best,
    differing,
    loss_of,
    outlook,
    paid_by,
    reached,
    together,
)
from tui.curves_chart import Trace, columns_of, draw, figure
from tui.curves_price import priced
from tui.curves_text import (
    compare_rows,
    csv_rows,
    empty_sentence,
    head_line,
    money,
    money_rows,
    run_record,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "curves"
START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
AT = START.timestamp()


def curve(name: str, values: list[float | None], *, every: int = 1, seconds: bool = False, **fields: Any) -> wire.Curve:
    steps = tuple(range(every, every * len(values) + 1, every))
    known = [value for value in values if value is not None]
    return wire.Curve(**{
        "name": name, "steps": steps, "values": tuple(values), "count": len(values), "source": "log",
        "mean": sum(known) / len(known) if known else None, "seconds": tuple(AT + 60 * step for step in steps) if seconds else (),
        **fields,
    })  # fmt: skip


def told(*curves: wire.Curve, **fields: Any) -> wire.JobCurves:
    """20 of 50 steps of 8 samples of 16 tokens, 100 samples an epoch, 40 samples a second."""
    values: dict[str, Any] = {
        "job": "0abc00000001", "attempt": 1, "names": tuple(one.name for one in curves), "step": 20, "steps_total": 50, "batch_size": 8,
        "samples_per_epoch": 100, "tokens_per_sample": 16, "epochs_per_step": 0.08, "samples_per_second": 40.0,
        "steps_per_second": 5.0, "ended": False, "sources": ("the log: 20 lines of attempt 1",),
    }  # fmt: skip
    return wire.JobCurves(curves=curves, **{**values, **fields})


LOSS = curve("loss", [2.0 / step for step in range(1, 21)])
SPEED = curve("samples_per_second", [40.0] * 20)


def run(number: int = 1, curves: wire.JobCurves | None = None, **fields: Any) -> Run:
    values = {"usd_per_hour": Decimal("7.20"), "cost": Decimal("1.25"), "cpus": None, **fields}
    return Run("gpu-01", job(number, **values), curves or told(LOSS, SPEED))


# -- money, worked by hand ---------------------------------------------------------------------------------------------


def test_an_epoch_a_million_and_the_rest_cost_what_the_price_and_the_speed_make_of_them() -> None:
    seen = outlook(run())
    # 7.20 an hour is 0.002 a second. An epoch: 100 / 40 = 2.5 s = 0.005. A million samples: 25,000 s = 50; of tokens, 16 a
    # sample: 1,562.5 s = 3.125. To the end: 30 steps at 5 a second = 6 s = 0.012; with 1.25 paid: 1.262.
    assert (seen.epoch_seconds, seen.per_epoch) == (2.5, Fraction(5, 1000))
    assert (seen.per_million_samples, seen.per_million_tokens) == (50, Fraction(3125, 1000))
    assert (seen.steps_left, seen.seconds_left, seen.to_end, seen.total) == (30, 6.0, Fraction(12, 1000), Fraction(1262, 1000))
    assert seen.epochs == 1.6 and seen.so_far == Decimal("1.25") and not seen.whole_run


def test_a_job_without_a_gpu_costs_its_part_of_the_node_attempt_by_attempt() -> None:
    info = wire.NodeInfo(node="cpu-01", gpus=(), cpu_count=8, memory_total_bytes=32 * GIB)
    half = Weights(Fraction(0), Fraction(1), Fraction(0))
    first = wire.Attempt(number=1, started_at=START, ended_at=START + timedelta(minutes=30))
    second = wire.Attempt(number=2, started_at=START + timedelta(hours=1))
    plain = run(gpus_wanted=0, usd_per_hour=None, cost=None, cpus=Decimal(4), memory_bytes=None, attempts=(first, second), attempt=2)
    # Half of 0.60 an hour, for 30 minutes and then for 90: 0.15 and 0.45.
    found = priced(plain, info, Fraction(6, 10), half, START + timedelta(hours=2, minutes=30))
    assert (found.job.usd_per_hour, found.job.cost, [one.cost for one in found.job.attempts]) == (
        Decimal("0.3"), Decimal("0.6"), [Decimal("0.15"), Decimal("0.45")])  # fmt: skip
    assert dict(money_rows(found, outlook(found)))["cost"].endswith("$0.30 an hour (its part of the node by processors and memory, at the price of now)")
    assert paid_by(found.job, START.timestamp() + 7200) == Fraction(15, 100) + Fraction(30, 100)
    for price, size, words in ((None, info, "not known: the node has no price"), (Fraction(1), wire.NodeInfo(node="x", gpus=()), "does not tell how many processors")):
        unknown = priced(plain, size, price, half, START)
        assert words in dict(money_rows(unknown, outlook(unknown)))["cost"]
    assert together([found, unknown]).price_note == unknown.price_note and together([found, unknown]).job.cost is None
    assert priced(run(), info, Fraction(1), half, START) == run(), "the agent's own price stands"


def test_a_recipe_is_compared_by_all_its_settings_and_not_by_its_folder() -> None:
    commands = [("python3", "-m", "agent.recipes.vision", *flags) for flags in (("--log-every=2",), ("--learning-rate=0.01",))]
    runs = [run(n, told(LOSS, start={"checkpoints": f"/{n}", "model": "small"}), command=one) for n, one in enumerate(commands, 1)]
    assert differing(runs) == [("learning_rate", ["0.1", "0.01"]), ("log_every", ["2", "1"])]


def test_before_the_first_line_nothing_is_wrong_yet() -> None:
    nothing = told()
    assert empty_sentence(nothing, run().job).startswith("no curves yet: it runs, and has printed no line like")
    assert empty_sentence(nothing, run(state="ended").job).startswith("no curves: the job prints no lines like")


def test_what_is_not_known_makes_nothing_of_it() -> None:
    free = outlook(run(usd_per_hour=None, cost=None))
    assert (free.per_epoch, free.to_end, free.total, free.so_far) == (None, None, None, None) and free.epoch_seconds == 2.5
    bare = told(LOSS, steps_total=None, batch_size=None, samples_per_epoch=None, tokens_per_sample=None, epochs_per_step=None,
                samples_per_second=None, steps_per_second=None)  # fmt: skip
    seen = outlook(run(curves=bare, attempt=1, started_at=START), now=START + timedelta(seconds=100))
    assert (seen.steps_per_second, seen.whole_run) == (0.2, True) and seen.per_epoch is None and seen.steps_left is None
    assert outlook(run(curves=bare, attempt=2)).steps_per_second is None
    ended = outlook(run(state="ended", cause="exit:0"))
    assert (ended.steps_left, ended.to_end, ended.total) == (0, 0, Fraction(125, 100))
    rows = dict(money_rows(run(curves=bare, attempt=2), outlook(run(curves=bare, attempt=2))))
    assert 'no line {"event": "start"' in rows["to the end"] and "an epoch" not in rows
    waiting = told(LOSS, steps_per_second=None, samples_per_second=None)
    assert "has not been told yet" in dict(money_rows(run(curves=waiting), outlook(run(curves=waiting, attempt=2))))["to the end"]


def test_what_was_paid_until_a_loss_was_reached_counts_whole_attempts_and_a_part_of_the_last() -> None:
    attempts = (
        wire.Attempt(number=1, started_at=START, ended_at=START + timedelta(minutes=10), cost=Decimal("1.20")),
        wire.Attempt(number=2, started_at=START + timedelta(minutes=30)),
    )
    one = run(curves=told(curve("loss", [None, 4.0, 3.0, 2.0], every=10, seconds=True)), attempts=attempts)
    # step 20 at minute 20: the first attempt alone, 1.20. Step 40 at minute 40: ten minutes more at 7.20 an hour = 1.20.
    assert reached(one, 4.0) == (20, 4.0, Fraction(12, 10), True)
    assert reached(one, 2.5) == (40, 2.0, Fraction(24, 10), True)
    assert reached(one, 1.0) is None and reached(run(curves=told(SPEED)), 1.0) is None
    assert paid_by(one.job, AT + 300) == Fraction(6, 10) and paid_by(one.job, 1e300) is None
    # without times: as if all steps cost the same. Loss 0.5 at step 4 of 20: 1.25 * 4 / 20 = 0.25
    assert reached(run(), 0.5) == (4, 0.5, Fraction(1, 4), False)


def test_a_run_over_several_nodes_is_told_by_one_of_them_and_costs_what_all_do() -> None:
    teller, other = run(), Run("gpu-02", job(2, usd_per_hour=Decimal("0.80"), cost=Decimal("0.25")), told())
    one = together([other, teller])
    assert (one.node, one.job.usd_per_hour, one.job.cost, one.curves) == ("gpu-01", Decimal("8.00"), Decimal("1.50"), teller.curves)
    assert together([teller, Run("x", job(3, usd_per_hour=None, cost=None), told())]).job.usd_per_hour is None
    assert together([teller]) is teller


def test_figures_are_chosen_by_what_they_are_called() -> None:
    odd = told(curve("eval/nll_loss", [3.0, 1.0, 2.0]), curve("top1_acc", [0.1, 0.9, 0.5]))
    found = loss_of(odd)
    assert found is not None and best(found) == (2, 1.0) and best(odd.curves[1]) == (2, 0.9)
    assert loss_of(told(SPEED)) is None and best(curve("loss", [None])) is None


def test_settings_that_differ_come_from_the_command_and_the_start_line() -> None:
    first = run(command=("python", "train.py", "--lr", "0.1", "--fp16", "seed=1"), curves=told(LOSS, start={"batch_size": "8"}))
    other = run(2, command=("python", "train.py", "--lr=0.2", "seed=1"), curves=told(LOSS, start={"batch_size": "16"}))
    assert differing([first, other]) == [("batch_size", ["8", "16"]), ("lr", ["0.1", "0.2"]), ("fp16", ["yes", None])]
    rows = dict(compare_rows([first, other], [outlook(first), outlook(other)], 0.5))
    assert rows["lr"] == ["0.1", "0.2"] and rows["$ to loss 0.5"] == ["about $0.2500 at step 4"] * 2 and "accuracy" not in rows


def test_dollars_have_the_digits_that_matter() -> None:
    assert [money(Fraction(value)) for value in ("0", "12.345", "0.5", "0.0123456", "0.00000051")] == [
        "$0.00", "$12.34", "$0.5000", "$0.01235", "$0.000001",
    ]  # fmt: skip
    assert [figure(value) for value in (None, 0.43121, 1234.5, 1.2e-05, 1e9)] == ["–", "0.4312", "1,234", "1.2e-05", "1e+09"]


def test_nothing_a_job_says_moves_a_cursor_or_is_a_formula() -> None:
    bad = told(curve("=cmd\x1b[2J", [1.0, None]), sources=("x\x1b[2J",), start={"\x1bk": "\x1b"}, problems=("\x1b",))
    one = run(curves=bad, name="\x1b[2J", command=("\x1b",))
    text = [head_line(one), *(str(row) for row in csv_rows(bad.curves)), *(cell for _, cells in compare_rows([one, run(2)], [outlook(one)] * 2) for cell in cells)]
    assert not any("\x1b" in part for part in text) and csv_rows(bad.curves)[0] == ["step", "time", "'=cmd?[2J"]
    assert csv_rows(bad.curves)[1:] == [["1", "", "1.0"], ["2", "", ""]]
    assert run_record(one, outlook(one))["usd_per_epoch"] == "0.005000000"


# -- plots --------------------------------------------------------------------------------------------------------------

VALUES = st.lists(st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)), max_size=60)


@settings(max_examples=30)
@given(st.lists(VALUES, min_size=1, max_size=3), st.integers(1, 120), st.integers(1, 30), st.booleans(), st.booleans())
def test_any_curves_fit_any_size(many: list[list[float | None]], width: int, height: int, unicode: bool, log: bool) -> None:
    drawn = draw([Trace(range(1, len(values) + 1), values) for values in many], width, height, unicode=unicode, log=log)
    if drawn is not None:
        lines = drawn.lines()
        assert len(lines) == height and max(map(cell_len, lines)) <= width


def test_a_gap_is_not_drawn_across_and_between_steps_a_line_is() -> None:
    assert columns_of(Trace((0, 4, 8), (0.0, 4.0, None)), (0, 8), 9) == [[0.0], [1.0], [2.0], [3.0], [4.0], None, None, None, None]
    assert columns_of(Trace((5,), (1.0,)), (5, 5), 3) == [[1.0], None, None]


def test_curves_over_each_other_have_marks_of_their_own() -> None:
    drawn = draw([Trace(range(60), [3.0] * 60), Trace(range(60), [1.0] * 60), Trace(range(60), [3.0] * 60)], 60, 9)
    assert drawn is not None
    text = "\n".join(drawn.lines())
    assert "o+o+o+" in text and "xxxxxx" in text


# -- the commands -------------------------------------------------------------------------------------------------------


class Curved(JobService):
    """Jobs with curves that a test gave them; the log is read in two parts."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.curved: dict[str, wire.JobCurves] = {}
        self.read: set[str] = set()

    async def curves(self, id: str, points: int, names: tuple[str, ...] = ()) -> wire.JobCurves:
        import msgspec

        job = self.job(id)
        found = self.curved.get(id)
        if found is None:
            return wire.JobCurves(job=id, attempt=1, curves=(), ended=job.state == "ended")
        behind = 0 if id in self.read else 1000
        self.read.add(id)
        return msgspec.structs.replace(found, job=id, behind_bytes=behind, curves=() if behind else found.curves)


def test_the_commands_print_what_is_kept_as_golden_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    service = Curved()
    fields = {"state": "ended", "cause": "exit:0", "usd_per_hour": Decimal("7.20"), "cost": Decimal("1.25"), "user": "ada"}
    for number, factor in ((1, 2.0), (2, 1.0)):
        loss = curve("loss", [factor * math.exp(-step / 15) + 0.2 if not 20 < step < 24 else None for step in range(1, 51)])
        service.kept[f"0abc0000000{number}"] = job(number, "n1", **fields, command=("python", "train.py", "--lr", f"0.{number}"))
        service.curved[f"0abc0000000{number}"] = told(loss, SPEED, step=50, end={"accuracy": f"0.9{number}"})
    service.kept["0abc00000003"] = job(3, "n1", **{**fields, "name": "mute"})
    with job_site(tmp_path, service):
        monkeypatch.setenv("RACKRATE_HOME", str(tmp_path))

        def command(*arguments: str) -> Done:
            return rackrate_here(capfdbinary, *arguments)

        found = {"curves.txt": command("job", "curves", "train-1"), "compare.txt": command("job", "compare", "train-1", "train-2", "--at-loss", "0.6")}
        for name, done in found.items():
            assert done.code == 0, done
            assert done.out == (GOLDEN / name).read_text(), name
        mute = command("job", "curves", "mute")
        assert mute.code == 1 and "the job prints no lines like" in mute.err and mute.out == ""
        assert command("job", "compare", "train-1", "mute").code == 4
        for wrong in (("curves", "train-1", "--points", "3"), ("curves", "train-1", "--name", "no"), ("compare", "train-1"),
                      ("compare", "train-1", "train-1"), ("compare", "train-1", "train-2", "--at-loss", "nan"),
                      ("curves", "train-1", "--csv", "--json")):  # fmt: skip
            done = command("job", *wrong)
            assert done.code == 2 and done.err.count("\n") == 1 and "Traceback" not in done.err, wrong


def test_a_run_over_nodes_has_the_curves_and_the_money_of_all_whichever_part_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    sites = [Curved(node=name) for name in ("n1", "n2")]
    fields = {"state": "ended", "cause": "exit:0", "usd_per_hour": Decimal("7.20"), "cost": Decimal("1.25"), "gang": "0gang0000000"}
    for number, service in enumerate(sites, 1):
        service.kept[f"0abc0000000{number}"] = job(number, f"n{number}", **fields)
    sites[1].curved["0abc00000002"] = told(LOSS, SPEED)
    with job_site(tmp_path, *sites):
        monkeypatch.setenv("RACKRATE_HOME", str(tmp_path))
        for named in ("0abc00000001", "0abc00000002", "0gang0000000", "0gang"):
            done = rackrate_here(capfdbinary, "job", "curves", "--json", named)
            found = done.json()
            assert (found["usd_so_far"], found["usd_per_hour"], len(found["curves"]["curves"])) == ("2.50", "14.40", 2), (named, done)
        same = rackrate_here(capfdbinary, "job", "compare", "0abc00000001", "0abc00000002")
        assert same.code == 2 and "these are the same job" in same.err
