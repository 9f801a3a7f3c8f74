"""The options of the commands about jobs: `run`, `jobs`, `job show|logs|curves|compare|cancel|signal|wait`.

Invariant: what stands behind `--` is the job's command, word for word; no option of ours is looked for in it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from tui.cli_time import add_record_options
from tui.job_options import OPTIONS

RUN_EPILOG = """examples:
  rackrate run --gpus 2 --time-limit 8h -f -- python train.py --epochs 3
  rackrate run --on gpu:A100 --gpus 1 --budget 40usd --dry-run -- python train.py
  rackrate run --workdir . --env WANDB_MODE=offline --secret KEY=key.txt -- ./train.sh
  rackrate run --nodes 2 --gpus 8 --on-node-loss continue -- torchrun train.py
  rackrate run --recipe vision --gpus 2 --set steps=5000 --set data=/data/flowers -f
  rackrate run --recipe list              the training programs that ship; --set list: and their settings
  rackrate run job.toml                   the same options as keys: gpus = 2, time_limit = "8h"

Without --node the job goes to the node that would start it now, the cheapest one per hour first.
"""
JOBS_EPILOG = """examples:
  rackrate jobs                           what runs and what waits, on all nodes
  rackrate jobs user:me state:running     both hold; `a or b`, parentheses, !term: see `rackrate nodes --help`
  rackrate jobs --all cause:oom 'cost>5'  also those that ended

keys: id, state, node, user, project, cause, name, why; numbers: gpus, cost, run and wait (5m, 2h), priority, attempt
COST `in report`: a job without a GPU; what its processors and memory cost is in `rackrate report --by job` and `job curves`
"""
JOB_EPILOG = """A job is named by its id, by the beginning of it, or by its name. A run over several nodes has an id too
(in `job show`): cancelling it cancels all parts.
"""
Add = Callable[..., argparse.ArgumentParser]


def split_command(argv: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """What is before the first `--`, and what is behind it (None: there is none)."""
    words = list(argv)
    if "--" not in words:
        return words, None
    at = words.index("--")
    return words[:at], words[at + 1 :]


def add_job_commands(commands: Any, command: Add, json: Callable[[argparse.ArgumentParser], None]) -> None:
    """Adds them to `commands`; `command` and `json` are those of the other commands."""
    _add_run(commands, command, json)
    listing = command(commands, "jobs", "jobs:jobs", "list jobs of all nodes")
    _epilog(listing, JOBS_EPILOG)
    listing.add_argument("query", nargs="*", metavar="QUERY", help="e.g. state:running user:ada cause:oom node:gpu-01")
    listing.add_argument("--all", action="store_true", help="also those that ended")
    json(listing)
    add_record_options(listing)
    job = command(commands, "job", "jobs:usage", "show, follow, draw, compare, cancel, signal or wait for a job")
    _epilog(job, JOB_EPILOG)
    _add_actions(job.add_subparsers(title="actions", metavar="ACTION"), command, json)


def _add_run(commands: Any, command: Add, json: Callable[[argparse.ArgumentParser], None]) -> None:
    run = command(commands, "run", "run:run", "run a job on a node, when its GPUs are free")
    _epilog(run, RUN_EPILOG)
    run.usage = "rackrate run [OPTIONS] [FILE.toml] [-- COMMAND ...]"
    run.add_argument("file", nargs="?", metavar="FILE.toml", help="a job in a file: the options as keys, and `command`")
    for option in OPTIONS:
        if option.metavar is None:
            run.add_argument(option.flag, dest=option.key, action="store_true", help=option.help)
        elif option.many:
            run.add_argument(
                option.flag, dest=option.key, action="append", default=[], metavar=option.metavar, help=option.help
            )
        else:
            run.add_argument(option.flag, dest=option.key, metavar=option.metavar, help=option.help.replace("%", "%%"))
    run.add_argument("-f", "--follow", action="store_true", help="follow the log and end with the job's exit code")
    run.add_argument("--dry-run", action="store_true", help="print what would be done, and do nothing")
    json(run)
    _add_drive(run)


def _add_drive(run: argparse.ArgumentParser) -> None:
    group = run.add_argument_group(
        "spot under a deadline", "one job, on spot nodes while the policy says so, on demand when it must; it saves by itself"
    )
    group.add_argument("--spot-policy", metavar="NAME", help="rackrate, uniform_progress, greedy, ...: see `backtest spot`")
    group.add_argument("--work", metavar="48h", help="how long it computes in all")
    group.add_argument("--changeover", metavar="10m", help="boot, restore and lost work of a move, at most (default 10m)")
    group.add_argument("--spot-price", metavar="0.97usd", help="an hour on spot, where no spot node is there to ask")
    group.add_argument("--look", metavar="30s", help="how often to look (default 30s)")
    group.add_argument("--resume", metavar="ID", help="take up a run whose driver has ended")


def _add_actions(actions: Any, command: Add, json: Callable[[argparse.ArgumentParser], None]) -> None:
    show = command(actions, "show", "jobs:show", "everything about a job")
    show.add_argument("job", metavar="JOB")
    json(show)
    logs = command(actions, "logs", "jobs:logs", "print a job's log")
    logs.add_argument("job", metavar="JOB")
    logs.add_argument("-f", "--follow", action="store_true", help="go on until the job has ended; ends with its exit code")
    logs.add_argument("--attempt", metavar="N", help="of this run (default: the newest)")
    logs.add_argument("--tail", metavar="N", help="only the last N lines")
    logs.add_argument("--raw", action="store_true", help="as the job wrote it, with its control sequences")
    _add_curves(actions, command, json)
    cancel = command(actions, "cancel", "jobs:cancel", "stop jobs: softly, then for good")
    cancel.add_argument("job", nargs="+", metavar="JOB")
    cancel.add_argument("--force", action="store_true", help="kill at once")
    json(cancel)
    signal = command(actions, "signal", "jobs:signal", "send a signal to the first process of jobs")
    signal.add_argument("signal", metavar="SIGNAL", help="such as USR1")
    signal.add_argument("job", nargs="+", metavar="JOB")
    json(signal)
    for parser in (cancel, signal):
        parser.add_argument("--yes", action="store_true", help="do not ask first, also not about more than ten")
    wait = command(actions, "wait", "jobs:wait", "wait until jobs have ended; ends with their exit code")
    wait.add_argument("job", nargs="+", metavar="JOB")
    json(wait)


def _add_curves(actions: Any, command: Add, json: Callable[[argparse.ArgumentParser], None]) -> None:
    curves = command(actions, "curves", "curves:curves", "draw a training's loss and speed, and what an epoch and the rest cost")
    curves.add_argument("job", metavar="JOB")
    curves.add_argument("--name", action="append", default=[], metavar="NAME", help="this figure; may be repeated")
    curves.add_argument("--points", metavar="N", help="of each curve at most so many (4 to 1000, the default)")
    curves.add_argument("--csv", action="store_true", help="a row a step: step, time, then each figure")
    json(curves)
    compare = command(actions, "compare", "curves:compare", "trainings side by side: settings that differ, loss, speed, money")
    compare.add_argument("job", nargs="+", metavar="JOB")
    compare.add_argument("--at-loss", metavar="X", help="also what each had cost when its loss was first as low as this")
    json(compare)
    for parser in (curves, compare):
        parser.add_argument("--log", action="store_true", help="the loss on a logarithmic scale")


def _epilog(parser: argparse.ArgumentParser, text: str) -> None:
    parser.epilog = text
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
