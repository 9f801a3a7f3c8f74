"""From a key to what is sent to nodes: the question with its blast radius, five seconds to take it back, the sending, the outcome.

Invariant: nothing is sent that was not confirmed in a dialog (by an arrow, which no text can hold) and let be for five seconds;
targets are those of the key press, and each is looked at again before it is asked. Whatever was not sent when the app is left
is told. The sentences are those of `tui.blast`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import ceil
from typing import TYPE_CHECKING, ClassVar

import msgspec
from textual.app import App
from textual.binding import Binding, BindingType
from textual.timer import Timer

from agent import wire
from tui import format as fmt
from tui.blast import TYPED_ABOVE, Sentence, counted, names_text
from tui.fleet import Fleet
from tui.ui import actions
from tui.ui.actions import key_of
from tui.ui.screens.base import RackrateScreen
from tui.ui.screens.confirm import ConfirmScreen

if TYPE_CHECKING:
    from agent.client import AgentClient
    from tui.ui.app import RackrateApp

BACK_SECONDS = 5.0
"""From the answer to the first question to a node."""
LOOK_SECONDS = 0.2
TOLD_SECONDS = 1.5
AT_ONCE = 32
"""Nodes: of fifty that hang all are told after two rounds."""
OUTCOME_SECONDS = 15.0


class Target(msgspec.Struct, frozen=True):
    """A job (`ident`: its id), a GPU (its UUID), or a node (empty)."""

    node: str
    name: str
    """What it is called in a sentence."""
    ident: str = ""


Send = Callable[["AgentClient", Target], Awaitable[wire.Event | None]]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What was chosen, as the dialog says it and as it will be sent."""

    doing: str
    """`stopping`"""
    done: str
    """`stopped`"""
    noun: str
    """`job`"""
    targets: tuple[Target, ...]
    question: str
    sentences: tuple[Sentence, ...]
    no: str
    yes: str
    command: str
    """The command line that does the same."""
    changed: Callable[[Fleet, Target], str | None]
    """Why a target is left out when it comes to it (`has ended`); None: it is as it was."""
    send: Send
    """Gives what the fleet learns from the answer."""

    @property
    def what(self) -> str:
        """`stopping 3 jobs`, `stopping train-1`."""
        return f"{self.doing} {self.targets[0].name if len(self.targets) == 1 else counted(len(self.targets), self.noun)}"


class Pending(msgspec.Struct):
    """What will be sent unless it is taken back."""

    plan: Plan
    due: float


class Sending(msgspec.Struct):
    """What is being sent."""

    plan: Plan
    asked: set[Target]


class Outcome(msgspec.Struct, frozen=True):
    """What became of the targets."""

    plan: Plan
    done: tuple[Target, ...]
    failed: tuple[tuple[Target, str], ...]
    left: tuple[tuple[Target, str], ...]

    @property
    def sentence(self) -> str:
        """`stopped 9 of 10: gpu-07 did not answer`."""
        plan = self.plan
        if not self.failed and not self.left:
            name = plan.targets[0].name if len(plan.targets) == 1 else counted(len(plan.targets), plan.noun)
            return f"{plan.done} {name}"
        parts = [f"{plan.done} {len(self.done)} of {len(plan.targets)}"] if len(plan.targets) > 1 else [f"not {plan.done}"]
        why = [*_grouped(self.failed), *(f"left out, as {text}" for text in _grouped(self.left))]
        return f"{parts[0]}: {'; '.join(why)}"


def _grouped(found: tuple[tuple[Target, str], ...]) -> list[str]:
    """Each reason once, behind those that it is of."""
    by: dict[str, list[str]] = {}
    for target, text in found:
        by.setdefault(text, []).append(target.name)
    return [f"{names_text(names, 4)}{text}" for text, names in by.items()]


def refusal() -> str | None:
    """Why nothing may be changed; None: it may."""
    return actions.held() or ("this is read-only" if actions.read_only() else None)


def ask(app: RackrateApp, plan: Plan) -> None:
    """Opens the dialog; what is answered yes to waits five seconds."""
    if refused := refusal():
        app.say(f"{plan.what}: refused, {refused}.", "idle")
        return
    if not plan.targets:
        app.say(f"There is no {plan.noun} here.", "dim")
        return

    def answered(yes: bool | None) -> None:
        if yes:
            app.will_send(plan)

    typed = len(plan.targets) if len(plan.targets) > TYPED_ABOVE else None
    app.push_screen(ConfirmScreen(plan.question, plan.sentences, plan.no, plan.yes, count=typed, command=plan.command), answered)


class Blasting(App[None]):
    """The part of the app that waits, takes back, and sends. Esc takes back before it means anything else."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "take_back_first", show=False, priority=True, id="app.take_back_first.escape")
    ]
    _looking: Timer | None = None
    _quiet_until = 0.0
    """Until then no countdown covers what was said."""

    @property
    def pending(self) -> list[Pending]:
        """What waits, the oldest first."""
        return self.__dict__.setdefault("_pending", [])

    @property
    def _sending(self) -> list[Sending]:
        return self.__dict__.setdefault("_sendings", [])

    @property
    def _this(self) -> RackrateApp:
        from tui.ui.app import RackrateApp

        assert isinstance(self, RackrateApp)
        return self

    def say(self, text: str, style: str, seconds: float = OUTCOME_SECONDS) -> None:
        """In the status line of the topmost screen that has one."""
        for screen in reversed(self.screen_stack):
            if isinstance(screen, RackrateScreen):
                return screen.note(text, style, seconds)

    def will_send(self, plan: Plan) -> None:
        """In five seconds, unless it is taken back."""
        self.pending.append(Pending(plan, self._this.clock() + BACK_SECONDS))
        if self._looking is None:
            self._looking = self.set_interval(LOOK_SECONDS, self.look_at_pending)
        self.look_at_pending()

    def look_at_pending(self) -> None:
        """Sends what is due, and counts down the rest."""
        now = self._this.clock()
        for one in [one for one in self.pending if one.due <= now]:
            self.pending.remove(one)
            self._this.asking.start(self._send(one.plan))
        if self.pending and now < self._quiet_until:
            return
        if self.pending:
            newest = self.pending[-1]
            more = f" ({len(self.pending) - 1} more after it)" if len(self.pending) > 1 else ""
            left = max(1, ceil(newest.due - now))
            self.say(f"{newest.plan.what} in {left} s, {key_of('take_back')} takes it back{more}", "idle", 2.0)
        elif self._looking is not None:
            self._looking.stop()
            self._looking = None

    def action_take_back(self) -> None:
        """The newest of what waits is not sent."""
        if not self.pending:
            return self.say("There is nothing to take back: nothing waits to be sent.", "dim", 5.0)
        plan = self.pending.pop().plan
        self.look_at_pending()
        self._quiet_until = self._this.clock() + TOLD_SECONDS
        more = f"; {counted(len(self.pending), 'more action')} will be sent" if self.pending else ""
        self.say(f"taken back: {plan.what}. Nothing was sent{more}.", "accent", 5.0)

    def action_take_back_first(self) -> None:
        self.action_take_back()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Esc is for this only while something waits, and nothing is open that Esc closes."""
        if action == "take_back_first":
            return bool(self.pending) and isinstance(self.screen, RackrateScreen) and not self.screen.query(".-open")
        return super().check_action(action, parameters)

    def unsent(self) -> list[str]:
        """What the end of the app leaves undone, in sentences."""
        dropped = [f"{one.plan.what}: not sent, the app was left before its five seconds were over" for one in self.pending]
        for one in self._sending:
            dropped.append(f"{one.plan.what}: only {len(one.asked)} of {len(one.plan.targets)} were asked when the app was left;"
                           f" the same: {one.plan.command}")  # fmt: skip
        return dropped

    # -- sending ------------------------------------------------------------------------------------------------------

    async def _send(self, plan: Plan) -> None:
        app, sending = self._this, Sending(plan, set())
        if refused := refusal():
            return app.say(f"{plan.what}: refused, {refused}.", "idle")
        self._sending.append(sending)
        left = [(target, why) for target in plan.targets if (why := _changed(plan, app.fleet, target)) is not None]
        going = [target for target in plan.targets if target not in {one for one, _ in left}]
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(target: Target) -> str | None:
            async with gate:
                sending.asked.add(target)
                return await _ask_one(app, plan, target)

        try:
            answers = await asyncio.gather(*(one(target) for target in going))
        finally:
            self._sending.remove(sending)
        failed = tuple((target, text) for target, text in zip(going, answers, strict=True) if text is not None)
        done = tuple(target for target, text in zip(going, answers, strict=True) if text is None)
        outcome = Outcome(plan, done, failed, tuple(left))
        app.say(outcome.sentence, "lost" if failed else "idle" if left else "accent")
        app.redraw()


def _changed(plan: Plan, fleet: Fleet, target: Target) -> str | None:
    """Why it is left out, to stand behind its name."""
    why = "is not among the nodes any more" if target.node not in fleet else plan.changed(fleet, target)
    return None if why is None else f" {why}"


async def _ask_one(app: RackrateApp, plan: Plan, target: Target) -> str | None:
    """Why it failed, to stand behind its name; None: it is done."""
    from agent.client import AgentRefused, ClientError, Unreachable
    from tui.errors import RackrateError

    try:
        async with app.asking.client(target.node) as client:
            event = await plan.send(client, target)
    except AgentRefused as error:
        return f": {fmt.clean(error.text)}"
    except Unreachable:
        return " did not answer" if not target.ident else f": {fmt.clean(target.node)} did not answer"
    except (ClientError, RackrateError) as error:
        return f": {fmt.clean(str(error))}"
    if event is not None and target.node in app.fleet:
        app.fleet.apply(target.node, event, app.clock())
    return None
