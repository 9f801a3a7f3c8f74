"""The options of `record` and `replay`, and of commands that take a recording instead of the nodes.

Invariant: `--at` without `--record` is a wrong usage, not a silence.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

EPILOG = """one file holds all of it: what the nodes told, jobs, alerts, notices, the usage rows taken meanwhile, and the prices, terms
and budgets in force; tokens and passwords are never in it. an 8-GPU node at 1 Hz takes about 300 kB an hour.

  rackrate record fleet.rec                     until Ctrl-C; again into the same file: it goes on
  rackrate record --for 8h --keep 7d --every 10s fleet.rec 'tag:team=red'
  rackrate replay fleet.rec --at 14:05
  rackrate report --record fleet.rec --at 2026-11-30T14:00 --format csv
"""
AT_HELP = "-2h (before its end), +5m (after its beginning), 14:05, 14:05:10 or an ISO time (default: its end)"


def add_time_commands(commands: Any, command: Callable[..., argparse.ArgumentParser]) -> tuple[argparse.ArgumentParser, ...]:
    """Adds them to `commands`; returns those that open the app."""
    record = command(commands, "record", "record:record", "keep what the fleet does in a file, without a screen")
    record.epilog, record.formatter_class = EPILOG, argparse.RawDescriptionHelpFormatter
    record.add_argument("file", metavar="FILE")
    record.add_argument("query", nargs="*", metavar="QUERY", help="of nodes, as they are when it begins (default: all)")
    record.add_argument("--for", dest="limit", type=_seconds, metavar="TIME", help="end after this long")
    record.add_argument("--keep", type=_seconds, metavar="TIME", help="drop what is older, such as 7d (default: keep all)")
    record.add_argument("--every", type=_seconds, default=1.0, metavar="TIME", help="keep a sample of a node this often (default 1s)")
    replay = command(commands, "replay", "replay:replay", "the app on a recording, with the prices of that time")
    replay.add_argument("file", metavar="FILE")
    replay.add_argument("--at", metavar="TIME", help=AT_HELP.replace("its end)", "its beginning)"))
    replay.add_argument("--speed", type=int, choices=(0, 1, 10, 60), default=1, help="seconds a second; 0: stand still (default 1)")
    return (replay,)


def add_record_options(parser: argparse.ArgumentParser) -> None:
    """`--record FILE` and `--at TIME`."""
    parser.add_argument("--record", metavar="FILE", help="of a recording instead of the nodes: everything as of --at")
    parser.add_argument("--at", metavar="TIME", help=f"with --record: {AT_HELP}")


def _seconds(text: str) -> float:
    from tui.amounts import duration

    try:
        return duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} {error}") from None


def time_words(argv: Sequence[str]) -> list[str]:
    """`--at -2h` is a time, not an option."""
    words = list(argv)
    for place in range(len(words) - 1, 0, -1):
        if words[place - 1] == "--at" and words[place][:1] == "-" and words[place][1:2].isdigit():
            words[place - 1 : place + 1] = [f"--at={words[place]}"]
    return words
