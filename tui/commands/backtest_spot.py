"""`backtest spot`: what policies for spot under a deadline would have cost on recorded availability.

Invariant: every policy meets the same starts; what was left out is said, and the command then exits with 4.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tui import format as fmt
from tui.amounts import duration
from tui.commands.context import Context
from tui.errors import WrongUsage
from tui.exit_codes import ExitCode
from tui.output import print_json, print_table, say
from tui.progress import LiveLine, live_line

if TYPE_CHECKING:
    from pricing.market_traces import Trace
    from pricing.spot import Job
    from pricing.spot_backtest import Worlds
    from pricing.spot_hazard import SpotModel
    from pricing.spot_judge import Judgement

ALIGN = ("left", *["right"] * 8)
TITLES = ("policy", "saving", "±", "od h", "spot h", "gap", "vs UP", "±", "late")


def spot(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Prints a row per policy: saving, hours, late runs, how much of the gap to the optimum it closes."""
    from pricing.market_traps import summary
    from pricing.spot import policy_of
    from pricing.spot_judge import judge
    from pricing.spot_traces import read_traces, starts_of, tick_of

    hours = {name: _hours(arguments, name) for name in ("work", "deadline", "changeover", "history")}
    names = _names(arguments.policy)
    for name in names:
        if name != "omniscient":
            policy_of(name)
    _job(arguments, hours, 1000)
    if arguments.starts is not None and arguments.starts < 1:
        raise WrongUsage("--starts has to be 1 or more.")
    if arguments.seed < 0:
        raise WrongUsage("--seed has to be 0 or more.")
    with live_line() as line:
        found = read_traces(
            arguments.traces, available=arguments.available, changeover_hours=hours["changeover"],
            on_progress=lambda files, name: line.tell("reading traces", f": {files:,} files, {name}"),
        )  # fmt: skip
        job = _job(arguments, hours, tick_of(found.traces))
        worlds, left_out = starts_of(
            found.traces, job, starts=arguments.starts, seed=arguments.seed, history_hours=hours["history"]
        )
        models = _models(arguments, found.traces, worlds, line)
        runs = f" over {len(worlds.states):,} starts"
        judgement = judge(
            names, worlds, job, models=models, on_progress=lambda name: line.tell(f"judging {name}", runs, runs)
        )
    notes = [*found.notes, *left_out, *summary(found.traps), *_cautions(job, judgement)]
    if arguments.json:
        print_json(_record(judgement, worlds, job, models, arguments, notes))
    else:
        _print(judgement, worlds, job, arguments)
    for sentence in notes:
        say(f"note: {fmt.clean(sentence)}")
    return ExitCode.PARTLY if left_out or found.traps else ExitCode.DONE


def _hours(arguments: argparse.Namespace, name: str) -> float:
    text = getattr(arguments, name)
    if text is None:
        return 168.0
    if name in ("changeover", "history") and text.strip().rstrip("hms") in ("0", "0.0"):
        return 0.0
    try:
        float(text)
    except ValueError:
        pass
    else:
        raise WrongUsage(f"--{name} {text}: hours or seconds? Write {text}h or {text}s.")
    try:
        return duration(text) / 3600
    except ValueError as error:
        raise WrongUsage(f"--{name} {fmt.clean(text)} {error}.") from None


def _names(asked: Sequence[str]) -> list[str]:
    from pricing.spot import POLICIES, policy_of

    if not asked:
        return list(POLICIES)
    return list(dict.fromkeys(name if name == "omniscient" else policy_of(name).name for name in asked))


def _job(arguments: argparse.Namespace, hours: dict[str, float], tick_ms: int) -> Job:
    from pricing.spot import job_of

    return job_of(
        work_hours=hours["work"], deadline_hours=hours["deadline"], changeover_hours=hours["changeover"],
        on_demand=arguments.on_demand, spot=arguments.spot, tick_ms=tick_ms,
    )  # fmt: skip


def _models(
    arguments: argparse.Namespace, traces: Sequence[Trace], worlds: Worlds, line: LiveLine
) -> SpotModel | dict[int, SpotModel]:
    """The model of our own policy: the one that ships, or fitted."""
    from pricing.errors import PricingError
    from pricing.spot_hazard import SHIPPED, fit
    from pricing.spot_judge import leave_one_out
    from pricing.spot_traces import read_traces, states_of

    try:
        if arguments.fit:
            line.tell("fitting")
            found = read_traces(arguments.fit, available=arguments.available)
            return fit(states_of(found.traces), ", ".join(arguments.fit))
        if not arguments.leave_one_zone_out:
            return SHIPPED
        if len(worlds.zones) < 2:
            raise WrongUsage("--leave-one-zone-out needs traces of two zones or more; all of these are of one.")
        line.tell("fitting on all zones but one")
        by_zone = {zone: states_of([one for one in traces if one.place == zone]) for zone in worlds.zones}
        return leave_one_out(worlds.zones, by_zone)
    except PricingError:
        raise
    except ValueError as error:
        raise WrongUsage(f"Nothing can be fitted: {error}.") from None


def _cautions(job: Job, judgement: Judgement) -> list[str]:
    found = []
    if job.spot >= job.on_demand:
        found.append("Spot is not cheaper than on-demand at these prices, so no policy uses it.")
    if any(not one.exact for one in judgement.verdicts):
        found.append("Changeover and tick have no common measure: omniscient is a bound that lies a little beyond the optimum.")
    if 1 < judgement.clusters < 8:
        found.append(f"The starts lie in {judgement.clusters} stretches of time only: take the standard errors as too small.")
    return found


def _print(judgement: Judgement, worlds: Worlds, job: Job, arguments: argparse.Namespace) -> None:
    rows = [
        (
            one.policy, _percent(one.saving_ratio), _points(one.standard_error), f"{one.on_demand_hours:.1f}",
            f"{one.spot_hours:.1f}", _percent(one.gap_closed_ratio, 0), _points(one.paired_difference, sign=True),
            _points(one.paired_standard_error), str(one.late_runs),
        )
        for one in judgement.verdicts
    ]  # fmt: skip
    print_table(TITLES, rows, ALIGN)
    starts, zones = _count(len(worlds.states), "start"), _count(len(judgement.zones), "zone")
    clusters = _count(judgement.clusters, "cluster")
    print(f"\n{starts} in {zones}, ticks of {job.tick_ms / 1000:g} s; ± clustered ({clusters}).")
    print("saving: against all work at the on-demand price. gap: from greedy to omniscient.")
    print("vs UP: points of saving more than Uniform Progress, paired. Hours: work done.")
    if arguments.zones:
        names = [one.policy for one in judgement.verdicts]
        print("\nSaving by zone, and how much of the time spot was there, in %:")
        print_table(
            ("zone", "starts", "there", *(_short(name) for name in names)),
            [
                (fmt.clean(zone), str(starts), f"{share * 100:.0f}", *(f"{savings[name] * 100:.1f}" for name in names))
                for zone, (starts, share, savings) in judgement.zones.items()
            ],
            ("left", *["right"] * (2 + len(names))),
        )


def _short(name: str) -> str:
    return {"on_demand": "OD", "omniscient": "optimum"}.get(
        name, name.replace("uniform_progress", "UP").replace("time_sliced_", "TS").replace("_plain", "0")
    )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _percent(value: float | None, places: int = 1) -> str:
    return "–" if value is None else f"{value * 100:.{places}f} %"


def _points(value: float | None, *, sign: bool = False) -> str:
    return "–" if value is None else f"{value * 100:{'+' if sign else ''}.1f}"


def _record(
    judgement: Judgement,
    worlds: Worlds,
    job: Job,
    models: SpotModel | dict[int, SpotModel],
    arguments: argparse.Namespace,
    notes: Sequence[str],
) -> dict[str, Any]:
    from pricing.spot_hazard import SpotModel

    single = asdict(models) if isinstance(models, SpotModel) else None
    fitted = None if isinstance(models, SpotModel) else {worlds.zones[zone]: asdict(one) for zone, one in models.items()}
    return {
        "policies": [
            {name: round(value, 6) if isinstance(value, float) else value for name, value in asdict(one).items()}
            | {"cost": f"{one.cost:.4f}"}
            for one in judgement.verdicts
        ],
        "starts": len(worlds.states),
        "clusters": judgement.clusters,
        "seed": arguments.seed,
        "tick_seconds": job.tick_ms / 1000,
        "zones": [
            {"zone": zone, "starts": starts, "available_ratio": round(share, 4), "saving_ratio": savings}
            for zone, (starts, share, savings) in judgement.zones.items()
        ],
        "model": single,
        "models": fitted,
        "notes": list(notes),
    }
