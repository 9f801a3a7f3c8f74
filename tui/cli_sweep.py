"""The options of `rackrate sweep`.

Invariant: what places the job has the same names as in `rackrate run`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from tui.job_options import OPTIONS

KEYS = ("node", "on", "nodes", "rendezvous", "gpus", "cpus", "memory", "time_limit", "deadline", "interruptible", "retries", "after",
        "priority", "name", "project", "user", "env", "secret", "workdir", "grace", "log_quota", "strict")  # fmt: skip
EPILOG = """examples:
  rackrate sweep --example > rates.toml   a whole file, with a word on each key
  rackrate sweep rates.toml --dry-run     where it would run, what an hour costs, and the command
  rackrate sweep rates.toml -f            runs as a job; its lines are followed
  rackrate sweep rates.toml --nodes 2     over two nodes, which start a Ray of their own with a token
  rackrate sweep show JOB                 its trials: settings, metric, cost, and which is best

A sweep that was stopped goes on when it is run again with the same checkpoint_dir (in [sweep]); a job that may be
interrupted, or has retries, goes on by itself.
"""


def add_sweep_command(
    commands: Any, command: Callable[..., argparse.ArgumentParser], json: Callable[[argparse.ArgumentParser], None]
) -> None:
    """Adds it to `commands`; `command` and `json` are those of the other commands."""
    sweep = command(commands, "sweep", "sweep:sweep", "search the best settings of a training, with Ray Tune, as a job")
    sweep.epilog = EPILOG
    sweep.formatter_class = argparse.RawDescriptionHelpFormatter
    sweep.usage = "rackrate sweep [OPTIONS] SWEEP.toml\n       rackrate sweep show [--json] JOB"
    sweep.add_argument("file", nargs="?", metavar="SWEEP.toml", help="the sweep; `show` for the trials of one")
    sweep.add_argument("job", nargs="?", metavar="JOB", help="with `show`: its id, the beginning of it, or its name")
    sweep.add_argument("--example", action="store_true", help="print a sweep file")
    sweep.add_argument("--trials", metavar="N", type=int, help="in the place of the file's trials")
    sweep.add_argument("--budget", metavar="40usd", help="in the place of the file's budget, of the whole sweep")
    for option in OPTIONS:
        if option.key not in KEYS:
            continue
        help = option.help.replace("%", "%%").replace(", with torchrun", "")
        if option.metavar is None:
            sweep.add_argument(option.flag, dest=option.key, action="store_true", help=help)
        elif option.many:
            sweep.add_argument(option.flag, dest=option.key, action="append", default=[], metavar=option.metavar, help=help)
        else:
            sweep.add_argument(option.flag, dest=option.key, metavar=option.metavar, help=help)
    sweep.add_argument("-f", "--follow", action="store_true", help="follow the log and end with the job's exit code")
    sweep.add_argument("--dry-run", action="store_true", help="print what would be done, and do nothing")
    json(sweep)
