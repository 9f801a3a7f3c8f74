"""The options of `watch`.

Invariant: without options it says everything that changes, with a line of money a minute.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

KINDS = ("node", "idle", "alert", "job", "notice", "money", "use")
EPILOG = """Says when a node becomes live, stale or lost, idle or used again; when an alert begins and is over; when a job waits, starts and
ends, with its cause; when the cloud will take a node away; and what the fleet costs. A line each with its time, without any
control sequence: for logs, for screen readers, for slow links. What was there at the beginning is summed up in one line.

examples:
  rackrate watch --plain                          until Ctrl-C
  rackrate watch --plain tag:team=red --every 10m
  rackrate watch --plain --only alert --only notice
  rackrate watch --plain --jobs user:me --alerts severity:critical     of all nodes, but only my jobs and what is critical
  rackrate watch --plain --level low              only what somebody should see to
  rackrate watch --plain --json | jq 'select(.event == "job" and .cause == "oom")'

QUERY selects nodes, as in `rackrate nodes --help`, at the moment of the change; --jobs and --alerts take the queries of `rackrate
jobs` and `rackrate alerts`. Levels: low is alerts, notices, nodes that are lost or heard, and jobs that ended badly; normal is all
that changes; high adds a line for each node as often as --every says.
With a screen reader: let it read new lines only; each is a sentence of its own, the newest is the last, and nothing is repainted.
The other commands (nodes, gpus, jobs, alerts, cost, advise) print once and end; --json has the same without columns. Times are of this machine's zone; --json has UTC.
exit codes: 0 ended by Ctrl-C, by --for or because the reader went away; 3 no node was reached; 128 + N a signal N
"""


def add_watch_command(commands: Any, command: Callable[..., argparse.ArgumentParser], json: Callable[[argparse.ArgumentParser], None]) -> None:
    """Adds it to `commands`; `command` and `json` are those of the other commands."""
    watch = command(commands, "watch", "watch:watch", "say what changes in the fleet, a line each")
    watch.epilog, watch.formatter_class = EPILOG, argparse.RawDescriptionHelpFormatter
    watch.add_argument("query", nargs="*", metavar="QUERY", help="of nodes, e.g. tag:team=red or @mine")
    watch.add_argument("--plain", action="store_true", help="lines without control sequences (there is no other way: the app is `rackrate`)")
    watch.add_argument("--every", type=_seconds, default=60.0, metavar="TIME", help="how often to say what it costs (default 1m)")
    watch.add_argument("--for", dest="limit", type=_seconds, metavar="TIME", help="end after this long")
    watch.add_argument("--only", action="append", default=[], choices=KINDS, help="only lines of this kind (may be repeated)")
    watch.add_argument("--jobs", action="append", default=[], metavar="QUERY", help="of jobs, e.g. user:me (several: all must hold)")
    watch.add_argument("--alerts", action="append", default=[], metavar="QUERY", help="of alerts, e.g. severity:critical")
    watch.add_argument("--level", choices=("low", "normal", "high"), default="normal", help="how much is said (default normal)")
    watch.add_argument("--tz", metavar="ZONE", help="IANA time zone of the times (default: this machine's)")
    json(watch)


def _seconds(text: str) -> float:
    from tui.amounts import duration

    try:
        return duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} {error}") from None
