"""`advise --apply`: the exact calls of each piece of advice; on a terminal each is made only once it is typed.

Invariant: without a terminal nothing is ever called, it is only printed; a call that could not be checked against the API's
own description is printed and never made. Every purchase is tried with DryRun first, and names what it costs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tui import advice_text
from tui import format as fmt
from tui.output import print_json, say

if TYPE_CHECKING:
    from pricing.advice import Advice, Case


def apply(arguments: argparse.Namespace, case: Case, advice: Advice, show: int | None, width: int) -> None:
    """Of what goes together, or of the one that `show N` names."""
    places = advice.together if show is None else (show - 1,)
    if arguments.json:
        print_json({**advice_text.record(advice, case), "dry_run": True})
        return
    if not places:
        print("No advice: there is nothing to apply.")
        return
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    for place in places:
        for line in _steps(advice, place, width):
            print(line)
        if interactive:
            _offer(arguments, advice, place)
        print()
    if not interactive:
        say("dry run: nothing was called (on a terminal a reservation is bought once you type `buy` and its number)")


def _steps(advice: Advice, place: int, width: int) -> Iterator[str]:
    action = advice.actions[place]
    yield from advice_text.wrapped(f"{place + 1}. {action.what}", width, "   ")
    saving = advice_text.money(action.saving_per_month, whole=False)
    yield f"   saves {saving} a month ({advice_text.span(*action.saving_range)})"
    yield from advice_text.commands(action, width)
    for call in action.calls:
        yield from advice_text.call_lines(call, width)
    if not action.calls:
        yield "  (no API call: do it with the commands above)"


def _offer(arguments: argparse.Namespace, advice: Advice, place: int) -> None:
    """Asks for the typed word, and makes what can be made."""
    from tui.commands import advise_calls

    action = advice.actions[place]
    if not advise_calls.can_make(action):
        print("  (printed only: Rackrate does not make these calls)")
        return
    word = f"buy {place + 1}"
    print(f"  Type `{word}` to buy this now, anything else to leave it: ", end="", flush=True)
    if sys.stdin.readline().strip() != word:
        print("  left as it is: nothing was called")
        return
    for line in advise_calls.make(action, arguments.profile):
        print(f"  {fmt.clean(line)}")
