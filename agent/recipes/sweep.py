"""A sweep: many trainings of one recipe or program with other settings, chosen and stopped early by Ray Tune.

    rackrate sweep SWEEP.toml
    python -m agent.recipes.sweep sweep.json

Invariant: this file needs no Ray and no torch: the search is in sweep_run.py, a trial is a process of its own (sweep_trial.py).
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from agent.recipes.faults import RecipeFault
from agent.recipes.sweep_plan import read

NO_RAY = (
    "rackrate: sweep: {python} has no Ray Tune ({missing} is missing); install it there (`pip install 'ray[tune]' optuna"
    " hyperopt`), or run another Python by --env PATH=/its/bin:/usr/bin:/bin."
)
NEEDED = {"random": ("ray", "pandas"), "grid": ("ray", "pandas"), "optuna": ("ray", "pandas", "optuna"),
          "hyperopt": ("ray", "pandas", "hyperopt")}  # fmt: skip
"""Modules by the kind of search; pandas stands for what `ray[tune]` brings beside Ray."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a sweep, or this node's part of it; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m agent.recipes.sweep", description="Runs a sweep through Ray Tune.")
    parser.add_argument("plan", metavar="SWEEP.json", help="as `rackrate sweep` writes it")
    path = Path(parser.parse_args(argv).plan)
    try:
        plan = read(path)
        missing = [name for name in NEEDED[plan.search] if importlib.util.find_spec(name) is None]
        if missing:
            print(NO_RAY.format(python=sys.executable, missing=missing[0]), file=sys.stderr)
            return 1
        from agent.recipes import sweep_run

        return sweep_run.run(plan, path.absolute().parent)
    except KeyboardInterrupt:
        return 130
    except RecipeFault as fault:
        print(f"rackrate: sweep: {fault}", file=sys.stderr)
        return fault.exit_code


if __name__ == "__main__":
    sys.exit(main())
