"""`rackrate`: the app and its commands. Parses the command line and turns errors into sentences and exit codes.

Invariant: a user's mistake is one sentence on stderr and exit code 1 to 4, never a traceback; each command's modules
are imported only when it runs.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence

from tui import __version__
from tui.cli_advice import add_advice_commands
from tui.cli_calibrate import add_calibrate_commands, calibrate_words
from tui.cli_discover import add_discover_command
from tui.cli_jobs import add_job_commands, split_command
from tui.cli_ledger import add_ledger_commands
from tui.cli_nodes import add_order_commands
from tui.cli_prices import add_price_commands, price_words
from tui.cli_report import add_report_command
from tui.cli_serve import add_serve_command
from tui.cli_sweep import add_sweep_command
from tui.cli_time import add_record_options, add_time_commands, time_words
from tui.cli_watch import add_watch_command
from tui.commands.context import Context
from tui.errors import RackrateError, WrongUsage
from tui.exit_codes import ExitCode

EPILOG = """examples:
  rackrate                                  the app: your nodes, or this machine
  rackrate demo                             the app on a simulated fleet
  rackrate serve                            the app in a browser, read-only
  rackrate watch --plain                    what changes, a line each: for screen readers, logs and slow lines
  rackrate add https://10.0.0.5:9477 --token-file gpu-01.token --fingerprint sha256:...
  rackrate nodes 'state:idle gpu:A100'      nodes with an idle A100
  rackrate run --gpus 2 -f -- python train.py    a job where it is cheapest now; -f follows its log
  rackrate jobs user:me                     your jobs on all nodes
  rackrate prices H100 buy:spot             spot prices of H100 instances
  rackrate report --format csv --from 2026-11-01 --to 2026-12-01 --by project,user --out november.csv

exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 not reachable, 4 partly done
"""

SCREENS = ("fleet", "node", "gpu", "alerts", "events", "jobs", "job", "curves", "submit", "costs", "budgets", "market", "advice", "help")
QUERY_HELP = "e.g. state:idle gpu:A100 user:me util<20 cost>5 !spot; `a or b`, parentheses, name:/regex/, @kept (see below)"
QUERY_EPILOG = """queries, alike for nodes, gpus, jobs, alerts and prices (quote them: the shell has its own <, >, ! and parentheses):
  train                       a part of any usual text           "red hot"           with a blank in it
  user:ada  user:=ada         a part of one text; all of it      user:               any text at all
  node:/gpu-0[1-3]$/          a regular expression, in linear time
  util<20  gpus=8  age>5m     numbers; of times with s, m, h, d  util:10..20         a range
  a b    a or b    !a         both; either; not                  (a or b) c          groups
  user:me                     exactly you                        @mine               [filters] mine = "..." in config.toml

"""


QUERY_KEYS = {
    "nodes": "keys: node, state (also of its GPUs), gpu, user, project, job, type, cloud, region, zone, buy, tag, alert;\n"
    "numbers: util and mem (%), power (W), gpus, free (GPUs), idle and cost ($/h), age",
    "gpus": "keys: node, state, gpu, user, project, job, type, cloud, region, zone, buy, tag;\n"
    "numbers: index, util and mem (%), power (W), temp (°C), cost ($/h), age",
    "alerts": "keys: rule, severity, node, what, state, gpu, user, project, job, type, cloud, region, zone, buy, tag;\n"
    "numbers: age, cost ($/h that goes to waste)",
}


CHANGES = (
    "run:run", "sweep:sweep", "calibrate:calibrate", "jobs:cancel", "jobs:signal", "node:drain", "node:undrain", "node:pause_alerts", "node:resume_alerts", "mps:mps",
)  # fmt: skip
"""Commands that change something on a node."""


MAX_KBPS_HELP = "kilobits a second that the app may write: it refreshes less often, keys are never slowed (0: no limit; default: 256 over SSH)"


def build_parser() -> argparse.ArgumentParser:
    """All commands with their options."""
    parser = argparse.ArgumentParser(
        prog="rackrate",
        description="Cost and resources of GPU nodes: who uses what, what it costs, what stands idle.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"rackrate {__version__}")
    parser.add_argument("--config", metavar="FILE", help="configuration file (default: config.toml in RACKRATE_HOME)")
    parser.add_argument("--read-only", action="store_true", help="change nothing on any node: the app has no such keys then")
    parser.add_argument("--max-kbps", type=_kbps, default=None, metavar="N", help=MAX_KBPS_HELP)
    parser.set_defaults(run="app:app")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    _add_node_commands(commands)
    add_discover_command(commands, _command, _json)
    add_job_commands(commands, _command, _json)
    add_calibrate_commands(commands, _command, _json)
    add_sweep_command(commands, _command, _json)
    add_order_commands(commands, _command, _json)
    _add_money_commands(commands)
    add_advice_commands(commands, _command, _json)
    add_ledger_commands(commands, _command, _json)
    add_watch_command(commands, _command, _json)
    _max_kbps(add_serve_command(commands, _command))
    for opening in add_time_commands(commands, _command):
        _max_kbps(opening)
    _add_other_commands(commands)
    return parser


def _command(commands, name: str, run: str, help: str) -> argparse.ArgumentParser:  # noqa: ANN001
    parser = commands.add_parser(name, help=help, description=help, allow_abbrev=False)
    parser.set_defaults(run=run)
    parser.add_argument("--config", metavar="FILE", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    return parser


def _max_kbps(parser: argparse.ArgumentParser) -> None:
    """The option of the app, behind the command too."""
    parser.add_argument("--max-kbps", type=_kbps, default=argparse.SUPPRESS, metavar="N", help=MAX_KBPS_HELP)


def _kbps(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is no rate: kilobits a second, such as 64; 0 is no limit")
    return number


def _read_only(parser: argparse.ArgumentParser) -> None:
    """The option of the whole program, behind the command too."""
    parser.add_argument("--read-only", action="store_true", default=argparse.SUPPRESS, help="change nothing on any node")


def _json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON on stdout")


def _add_node_commands(commands) -> None:  # noqa: ANN001
    for name, text in (
        ("nodes", "list nodes with use and money"),
        ("gpus", "list every GPU"),
        ("alerts", "list active alerts"),
    ):
        parser = _command(commands, name, f"nodes:{name}", text)
        parser.add_argument("query", nargs="*", metavar="QUERY", help=QUERY_HELP)
        parser.epilog, parser.formatter_class = QUERY_EPILOG + QUERY_KEYS[name], argparse.RawDescriptionHelpFormatter
        _json(parser)
        add_record_options(parser)
        if name == "nodes":
            parser.add_argument("--sum", action="store_true", help="print only the sums of what is selected, with what it cost today")
            parser.add_argument("--no-sync", action="store_true", help="with --sum: today's cost from the ledger as it stands")
    add = _command(commands, "add", "nodes:add", "add a node to the configuration")
    add.add_argument("url", metavar="URL", help="of its agent, e.g. https://10.0.0.5:9477")
    add.add_argument("--name", help="what to call it (default: the node's own name)")
    add.add_argument("--token-file", metavar="FILE", help="file with the agent's token")
    add.add_argument("--fingerprint", metavar="sha256:HEX", help="of the agent's certificate")
    add.add_argument("--tag", action="append", default=[], metavar="KEY=VALUE", help="may be given more than once")
    add.add_argument("--no-check", action="store_true", help="do not ask the node first")
    remove = _command(commands, "remove", "nodes:remove", "remove a node from the configuration")
    remove.add_argument("name", metavar="NAME")


def _add_money_commands(commands) -> None:  # noqa: ANN001
    add_price_commands(commands, _command, _json)
    sync = _command(commands, "sync", "money:sync", "bring usage rows of all nodes into the ledger")
    sync.add_argument("--node", action="append", default=[], metavar="NAME", help="only this node")
    _json(sync)
    cost = _command(commands, "cost", "money:cost", "what today and this month cost, and what became of the budgets")
    cost.add_argument("--fail-over", action="store_true", help="exit code 1 when a budget is spent and more")
    _money_options(cost)
    _json(cost)
    add_record_options(cost)
    add_report_command(commands, _command, _money_options, _json)
    close = _command(commands, "close", "closing:close", "freeze what a month cost; list closed months and their corrections")
    close.add_argument("month", nargs="?", metavar="YYYY-MM", help="a month that is over (default: list what is closed)")
    _money_options(close)
    _json(close)


def _money_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tz", metavar="ZONE", help="IANA time zone of days (default: this machine's)")
    parser.add_argument("--no-sync", action="store_true", help="use the ledger as it is, ask no node")
    parser.add_argument("--terms", metavar="FILE", help="discounts, commitments, exchange rates (default: terms.toml)")
    parser.add_argument("--currency", metavar="CUR", help="tell costs in it, at the terms' exchange rates (default: USD)")


def _add_other_commands(commands) -> None:  # noqa: ANN001
    doctor = _command(commands, "doctor", "setup:doctor", "check configuration, nodes, ledger and terminal")
    _json(doctor)
    demo = _command(commands, "demo", "setup:demo", "the app on a simulated fleet; a report where there is no terminal")
    demo.add_argument("--seed", type=int, default=7, help="of the simulation (default 7)")
    _read_only(demo)
    _max_kbps(demo)
    shot = _command(commands, "screenshot", "setup:screenshot", "a picture of the app (SVG or PNG)")
    shot.add_argument("out", metavar="FILE", help="ends in .svg or .png")
    shot.add_argument("--screen", choices=SCREENS, default="fleet")
    shot.add_argument("--node", metavar="NAME", help="which node (default: the first one)")
    shot.add_argument("--size", default="140x40", metavar="WxH", help="in cells (default 140x40)")
    shot.add_argument("--theme", default="")
    shot.add_argument("--demo", action="store_true", help="of the simulated fleet instead of the configured nodes")
    add_record_options(shot)
    keys = _command(commands, "keys", "keys:keys", "print every key of the app, with what config.toml changed")
    _json(keys)
    keys.add_argument("--markdown", action="store_true", help="as a table for a README")
    completion = _command(commands, "completion", "setup:completion", "print shell completion")
    completion.add_argument("shell", choices=("bash", "zsh", "tcsh"))


def find(run: str) -> Callable[[Context, argparse.Namespace], int]:
    """`module:function` below `tui.commands`, imported now."""
    module, _, function = run.partition(":")
    return getattr(importlib.import_module(f"tui.commands.{module}"), function)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    """What stands behind `--` is a job's command for `run`, and words like the others for every other command."""
    argv = time_words(calibrate_words(price_words(argv)))
    words, behind = split_command(argv)
    if behind is not None and "run" in words:
        arguments = build_parser().parse_args(words)
        if arguments.run == "run:run":
            arguments.behind = behind
            return arguments
    return build_parser().parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    arguments = _parse(sys.argv[1:] if argv is None else argv)
    try:
        context = Context(arguments.config)
        _refuse_changes(context, arguments)
        with _then(context, arguments) as context:
            return int(find(arguments.run)(context, arguments))
    except RackrateError as error:
        return _complain(str(error), error.exit_code)
    except BrokenPipeError:
        from tui.output import quiet_broken_pipe

        quiet_broken_pipe()
        return ExitCode.DONE
    except KeyboardInterrupt as error:
        sys.stderr.write(f"\nrackrate: broken off{f': {error}' if str(error) else '.'}\n")
        return 130
    except Exception as error:  # noqa: BLE001 - errors of the other packages, looked up without importing them
        return _complain_of_packages(error)


@contextlib.contextmanager
def _then(context: Context, arguments: argparse.Namespace) -> Iterator[Context]:
    """With `--record` the context of a recording's moment."""
    if not getattr(arguments, "record", None):
        if getattr(arguments, "at", None) and hasattr(arguments, "record"):
            raise WrongUsage("--at names a moment of a recording: give --record FILE too.")
        yield context
        return
    from tui.commands.recorded import RecordedContext

    recorded = RecordedContext(context, arguments.record, arguments.at)
    arguments.no_sync = True
    with contextlib.closing(recorded):
        yield recorded


def _refuse_changes(context: Context, arguments: argparse.Namespace) -> None:
    """What `--read-only` or the configuration forbids is refused before anybody is asked."""
    looks = arguments.run == "mps:mps" and arguments.share is None and arguments.memory is None
    looks = looks or arguments.run == "sweep:sweep" and (arguments.example or arguments.file == "show")
    if arguments.run not in CHANGES or getattr(arguments, "dry_run", False) or looks:
        return
    if arguments.read_only or context.config.read_only:
        why = "--read-only was given" if arguments.read_only else f"read_only is set in {context.paths.config_file}"
        raise WrongUsage(f"this would change something on a node, and {why}.")


def _complain_of_packages(error: Exception) -> int:
    """Errors of `pricing` and `agent.client` are sentences too; anything else is a fault of ours and is raised."""
    from agent.client import ClientError
    from pricing.errors import PricingError

    if isinstance(error, PricingError):
        return _complain(str(error), ExitCode(error.exit_code))
    if isinstance(error, ClientError):
        return _complain(str(error), ExitCode.UNREACHABLE)
    if isinstance(error, OSError) and not os.environ.get("RACKRATE_DEBUG"):
        where = f"{error.filename}: " if error.filename else ""
        return _complain(f"{where}{error.strerror or error}.", ExitCode.FAILED)
    raise error


def _complain(sentence: str, code: ExitCode) -> int:
    """A sentence may hold words of a file or of an agent: nothing in them reaches the terminal as a control sequence."""
    safe = "".join(sign if sign.isprintable() or sign == "\n" else "?" for sign in sentence)
    sys.stderr.write(f"rackrate: {safe}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
