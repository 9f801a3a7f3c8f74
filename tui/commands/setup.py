"""`doctor`, `demo`, `screenshot`, `completion`: getting started and finding out what is wrong.

Invariant: what these start ends with them.
"""

from __future__ import annotations

import argparse
import re
import sys

from tui.commands.context import Context
from tui.errors import WrongUsage
from tui.exit_codes import ExitCode
from tui.output import print_json, say


def doctor(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Runs all checks; fails when one of them does."""
    from tui.doctor import run_checks

    checks = run_checks(context)
    if arguments.json:
        print_json([check.record() for check in checks])
    else:
        for check in checks:
            print(check.line())
    return ExitCode.FAILED if any(check.status == "fail" for check in checks) else ExitCode.DONE


def demo(context: Context, arguments: argparse.Namespace) -> int:
    """The app on a simulated fleet; without a terminal: the fleet, its cost and the report of a day."""
    from tui.commands.app import handling_of
    from tui.demo import run_demo
    from tui.terminal import has_terminal

    handling = handling_of(context, arguments) if has_terminal() else {}
    return run_demo(seed=arguments.seed, handling=handling)


def screenshot(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Draws one screen of the app into a file."""
    match = re.fullmatch(r"(\d{2,3})x(\d{1,3})", arguments.size)
    if not match:
        raise WrongUsage(f"--size {arguments.size}: a size is written WIDTHxHEIGHT in cells, such as 140x40.")
    if not arguments.out.endswith((".svg", ".png")):
        raise WrongUsage(f"{arguments.out}: the file's name must end in .svg or .png.")
    from tui.screenshot import take_screenshot

    options = {
        "screen": arguments.screen,
        "node": arguments.node,
        "size": (int(match[1]), int(match[2])),
        "theme": arguments.theme,
    }
    if arguments.demo:
        from tui.demo import simulated_fleet

        with simulated_fleet(seed=7) as (demo_context, nodes):
            take_screenshot(demo_context, nodes, arguments.out, **options)
    else:
        with context.nodes() as nodes:
            take_screenshot(context, nodes, arguments.out, **options)
    say(f"wrote {arguments.out}")
    return ExitCode.DONE


def completion(context: Context, arguments: argparse.Namespace) -> ExitCode:
    """Prints a completion script for a shell."""
    try:
        import shtab
    except ImportError:
        raise WrongUsage("completion needs the package shtab: pip install shtab.") from None
    from tui.cli import build_parser
    from tui.query_shell import prepare

    parser = build_parser()
    preamble = prepare(parser, context.config.filters)
    sys.stdout.write(shtab.complete(parser, arguments.shell, preamble=preamble) + "\n")
    return ExitCode.DONE
