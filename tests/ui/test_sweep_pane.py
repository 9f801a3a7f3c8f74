"""The trials of a sweep: as lines, and on the screen of its job."""

from __future__ import annotations

import asyncio
from decimal import Decimal

from agent import wire
from tests.support.jobs import job
from tests.support.screens import press, running, text
from tests.tui.test_sweep_show import HEAD, LINES, gathered, line, trial
from tests.ui.test_job_screen import job_app, until
from tui.sweep_follow import SweepFollower, is_sweep
from tui.ui.panes.sweep import sweep_lines

MANY = [HEAD, *(trial(n, "ended", config={"lr": n / 10}, metric=1 / n, step=8, seconds=60.0, cost="0.01") for n in range(1, 20)),
        trial(20, "started", config={"lr": 3.0}), line(event="best", trial=2, command="rackrate run --recipe vision")]  # fmt: skip


def said(lines: list[str], cost: Decimal | None, cells: int = 120) -> str:
    return "\n".join("".join(part for part, _ in one) for one in sweep_lines(gathered(lines), cost, cells))


def test_the_best_is_told_by_a_word_and_what_does_not_fit_is_counted() -> None:
    shown = said(MANY, Decimal("0.50"))
    assert "Trials 20 of 4  19 ended  1 running  best so far 2: loss 0.5" in shown
    assert "trials $0.19  starts and GPUs that waited $0.31  together $0.50" in shown
    assert "best 2  ended" in shown and "20  starts" in shown and "… 8 more" in shown
    assert "trains the best  rackrate run --recipe vision" in shown
    assert max(map(len, said(MANY, None, 40).splitlines())) <= 40 and "is not known" in said(MANY, None)
    assert "3  failed" in said(LINES, Decimal(1)) and "(exit 1: no data)" in said(LINES, Decimal(1))


def page(text: str, offset: int, attempt: int = 1, *, ended: bool = False) -> wire.LogPage:
    return wire.LogPage(
        job="x", attempt=attempt, first_offset=0, offset=offset, next_offset=offset + len(text), text=text, ended=ended
    )  # fmt: skip


def test_a_log_is_read_on_from_where_it_was_and_a_new_attempt_from_its_start() -> None:
    log, shown = "\n".join(LINES) + "\n", []
    follower = SweepFollower(None, lambda: shown.append(1))  # type: ignore[arg-type]
    assert follower.swept is None and not follower.take(page(log[:200], 0)) and not follower.take(page(log[200:], 200))
    assert follower.swept and len(follower.swept.trials) == 3 and len(shown) == 2
    assert not follower.take(page("", len(log), 2)) and not follower.take(page(f"{HEAD}\n", 0, 2))
    assert len(follower.swept.trials) == 3 and follower.take(page("", len(HEAD) + 1, 2, ended=True))


async def test_the_screen_of_a_sweeps_job_shows_its_trials_above_the_facts() -> None:
    each = job(1, command=("python3", "-m", "agent.recipes.sweep", "sweep.json"))
    assert is_sweep(each) and not is_sweep(job(2))
    app, _, _ = job_app(each, log="\n".join(LINES) + "\n")
    async with running(app, (140, 40)) as pilot:
        await press(pilot, "j", "down", "enter")
        async with asyncio.timeout(60):
            while "best so far 1: loss 0.5" not in text(app):
                await press(pilot)
        assert "stopped early" in text(app) and "lr 0.123457  flip true" in text(app)
        await until(lambda: app.screen._sweep is not None)  # type: ignore[attr-defined]
