"""The options of `rackrate-agent drill`.

Invariant: nothing is imported here that the help of any other command would have to wait for.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from agent.interruption.drill import Drill

DOES = (
    "run a command as an interruptible job, give it a false spot notice, and tell whether its work was saved in time; "
    "ends with 1 if it was not"
)
EXAMPLES = (
    "  rackrate-agent drill --marker runs/last.pt -- python train.py --resume\n"
    "  rackrate-agent drill --cloud gcp --marker last.pt --wait-for-marker --json -- torchrun train.py"
)


def add(parser: argparse.ArgumentParser, duration: Callable[[str], int], count: Callable[[str], int]) -> None:
    """`duration` and `count` read the texts of lengths of time and of numbers."""
    parser.add_argument("--cloud", choices=("aws", "gcp", "azure"), default="aws", help="whose notice (default aws)")
    does = "from the notice to the end of the node (default: what the cloud promises: 120s, or 30s with gcp and azure)"
    parser.add_argument("--lead", type=duration, metavar="SECONDS", help=does)
    parser.add_argument("--marker", metavar="FILE", help="what the job writes when it saves; its time is the evidence")
    parser.add_argument("--wait-for-marker", action="store_true", help="give the notice only after the marker was written once")
    does = "how long the job runs before the notice (default 10s)"
    parser.add_argument("--warm-up", type=duration, metavar="SECONDS", default=10, help=does)
    does = "from the soft signal to the kill, as with rackrate run (default 30s)"
    parser.add_argument("--grace", type=duration, metavar="SECONDS", default=30, help=does)
    parser.add_argument("--gpus", type=count, default=0, metavar="N", help="give the job N GPUs of this machine (default 0)")
    does = "a variable for the job; without =VALUE it is taken over from here (repeatable)"
    parser.add_argument("--env", action="append", default=[], metavar="NAME[=VALUE]", help=does)
    parser.add_argument("--state-dir", metavar="DIR", help="keep the job's record and log there (default: thrown away)")
    parser.add_argument("argv", nargs="+", metavar="COMMAND", help="after --: the command and its arguments")


def asked(options: argparse.Namespace, environ: Mapping[str, str]) -> Drill:
    """What the parsed options ask for. ConfigurationError."""
    from agent.interruption.drill import Drill

    return Drill(
        command=tuple(options.argv),
        cloud=options.cloud,
        lead_seconds=options.lead,
        marker=_path(options.marker),
        wait_for_marker=options.wait_for_marker,
        warm_up_seconds=options.warm_up,
        grace_seconds=options.grace,
        gpus=options.gpus,
        environment=chosen(options.env, environ),
        state_dir=_path(options.state_dir),
    )


def chosen(names: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """`NAME=VALUE`, or `NAME` to take it over from `environ`. ConfigurationError."""
    from agent.errors import ConfigurationError

    found = {}
    for text in names:
        name, equals, value = text.partition("=")
        if not equals and name not in environ:
            raise ConfigurationError(f"there is no variable {name!r} here; write --env {name}=VALUE")
        found[name] = value if equals else environ[name]
    return found


def _path(text: str | None) -> Path | None:
    from pathlib import Path

    return None if text is None else Path(text).expanduser().absolute()
