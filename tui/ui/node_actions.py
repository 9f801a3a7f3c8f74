"""What can be done with nodes and their GPUs wherever they are shown: drain, pause alerts, share GPUs, copy names.

Invariant: an action is bound to what was marked or under the cursor when the key was pressed; nothing is sent before a dialog
was answered and its five seconds are over. What a node is then told it tells everybody by its stream, and so the fleet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from agent import wire
from tui import blast
from tui import format as fmt
from tui.alerts import covering
from tui.blast import counted, names_text, shell
from tui.errors import WrongUsage
from tui.fleet import Fleet, NodeView
from tui.job_command import duration_text
from tui.node_orders import (
    PAUSE_EXAMPLE,
    SHARE_EXAMPLE,
    chosen_gpus,
    pause_order,
    reason_of,
    share_words,
    typed_pause,
    typed_share,
)
from tui.ui.blast import Blasting, Plan, Target, ask

if TYPE_CHECKING:
    from agent.client import AgentClient


class NodeActions(Blasting):
    """The part of the app that gives orders to nodes."""

    # -- what is meant ------------------------------------------------------------------------------------------------

    def nodes_here(self) -> list[NodeView]:
        """The marked nodes that are shown, else the one under the cursor, else the one that is looked at."""
        screen: Any = self.screen
        names = screen.targets() if hasattr(screen, "targets") else [getattr(screen, "node", "")]
        return [self._this.fleet[name] for name in names if name in self._this.fleet]

    def alert_here(self) -> wire.Alert | None:
        """On the screen of alerts the one under the cursor."""
        chosen = getattr(self.screen, "alert_here", None)
        return chosen() if chosen is not None else None

    def gpu_here(self) -> str | None:
        """UUID of the GPU that is looked at; None: it is the node."""
        uuid = getattr(self.screen, "uuid", None)
        return uuid if isinstance(uuid, str) else None

    def _type(self, question: str, hint: str, answered: Callable[[str], None], **options: Any) -> None:
        from tui.ui.screens.ask_text import AskText

        self.push_screen(AskText(question, hint, **options), lambda text: None if text is None else answered(text))

    # -- drain --------------------------------------------------------------------------------------------------------

    def action_drain(self) -> None:
        """Drains those that are not drained; where all are, lets them start jobs again."""
        views = self.nodes_here()
        todo = [view for view in views if not drained(view)]
        if views and not todo:
            return ask(self._this, undrain_plan(views, self._this.clock()))
        if not todo:
            return self.say("There is no node here.", "dim", 5.0)
        who = names_text([view.name for view in todo])

        def answered(text: str) -> None:
            ask(self._this, drain_plan(todo, reason_of(text), self._this.clock()))

        self._type(f"Drain {who}: why?", "Those who wait read it. Enter goes on, also without a reason; Esc leaves.", answered,
                   example="new fan", empty=True, check=lambda text: _wrong(reason_of, text))  # fmt: skip

    # -- alerts -------------------------------------------------------------------------------------------------------

    def action_pause_alerts(self) -> None:
        """Pauses the alerts of the nodes, or the one alert under the cursor; where they are paused, resumes them."""
        alert = self.alert_here()
        if alert is not None and alert.node not in self._this.fleet:
            return self.say("This alert is of no node: it cannot be paused.", "dim", 5.0)
        views = [self._this.fleet[alert.node]] if alert is not None else self.nodes_here()
        if not views:
            return self.say("There is no node here.", "dim", 5.0)
        rule, gpu = (alert.rule, alert.gpu) if alert is not None else (None, self.gpu_here())
        if all(_paused(view, rule, gpu) for view in views):
            return ask(self._this, resume_plan(views, rule, gpu))

        def answered(text: str) -> None:
            seconds, reason = typed_pause(text)
            ask(self._this, pause_plan(views, pause_order(seconds, reason, rule, gpu)))

        what = f"Pause {_what(rule, views[0], gpu)} of {names_text([view.name for view in views])}: for how long, and why?"
        self._type(what, "Such as 30m, 2h new fan, 1d. Enter goes on, Esc leaves.", answered, value="2h ", example=PAUSE_EXAMPLE,
                   check=lambda text: _wrong(typed_pause, text))  # fmt: skip

    # -- shares -------------------------------------------------------------------------------------------------------

    def action_mps_share(self) -> None:
        """The default share of a GPU's clients of MPS."""
        views = self.nodes_here()
        if len(views) != 1 or not views[0].gpus:
            return self.say("Here is no GPU to share." if len(views) < 2 else "One node at a time: open it.", "dim", 5.0)
        view, uuid = views[0], self.gpu_here() or getattr(self.screen, "gpu", None)
        index = next((str(gpu.index) for gpu in view.gpus if gpu.uuid == uuid), "")

        def meant(text: str) -> tuple[list[wire.Gpu], wire.MpsSetting]:
            share = typed_share(text)
            return chosen_gpus(view.gpus, share.indexes, fmt.clean(view.name)), share.setting

        self._type(f"Share of a GPU of {fmt.clean(view.name)} through MPS", "Which GPU, which part of its SMs, how much memory:"
                   " 0 50% 8G, or all 25%. Enter goes on, Esc leaves.", lambda text: ask(self._this, share_plan(view, *meant(text))),
                   value=f"{index} " if index else "", example=SHARE_EXAMPLE, check=lambda text: _wrong(meant, text))  # fmt: skip

    # -- copy ---------------------------------------------------------------------------------------------------------

    def action_copy_names(self) -> None:
        """Names of nodes, one a line; of an alert what it says."""
        alert, views = self.alert_here(), self.nodes_here()
        if alert is not None:
            return self._this.copy_text(fmt.clean(f"{alert.node}: {alert.message}"), "the alert")
        if (uuid := self.gpu_here()) is not None:
            return self._this.copy_text(uuid, "the GPU's UUID")
        if views:
            what = fmt.clean(views[0].name) if len(views) == 1 else counted(len(views), "name")
            self._this.copy_text("\n".join(fmt.clean(view.name) for view in views), what)


    def action_copy_rows(self) -> None:
        """The rows that are marked, else the one under the cursor, as they are shown: a row a line, a tab between cells."""
        from tui.ui.widgets.line_table import LineTable

        for table in self.screen.query(LineTable):
            marked = getattr(table, "targets", None)
            keys = marked() if marked is not None else [key for key in (table.cursor_key,) if key]
            rows = ["\t".join("".join(part for part, _ in cell).strip() for cell in table.cells_of(key)) for key in keys]
            if rows:
                return self._this.copy_text("\n".join(rows), "the row" if len(rows) == 1 else counted(len(rows), "row"))
        self.say("There is no row to copy.", "dim", 5.0)


def _wrong(parse: Callable[[str], object], text: str) -> str | None:
    """Why a text cannot be taken; None: it can."""
    try:
        parse(text)
    except WrongUsage as error:
        return str(error)
    return None


def drained(view: NodeView) -> bool:
    return view.info is not None and view.info.drain is not None


def _paused(view: NodeView, rule: str | None, gpu: str | None) -> bool:
    """Whether all that is meant is paused: the whole node, or this alert."""
    found = view.info.pauses if view.info is not None else ()
    if rule is None:
        return any(one.rule is None and one.gpu in (None, gpu) for one in found)
    return bool(covering(view, rule, gpu))


def _what(rule: str | None, view: NodeView, gpu: str | None) -> str:
    """`all alerts`, `gpu_hot of GPU 3`."""
    index = next((f" of GPU {one.index}" for one in view.gpus if one.uuid == gpu), "")
    return f"{'all alerts' if rule is None else fmt.clean(rule)}{index}"


def _nodes(views: Sequence[NodeView]) -> tuple[Target, ...]:
    return tuple(Target(node=view.name, name=fmt.clean(view.name)) for view in views)


def _names(views: Sequence[NodeView]) -> list[str]:
    return [view.name for view in views]


def drain_plan(views: Sequence[NodeView], reason: str | None, now: float) -> Plan:
    async def send(client: AgentClient, target: Target) -> None:
        await client.drain(reason, who=blast.me())

    def changed(fleet: Fleet, target: Target) -> str | None:
        return "is drained already" if drained(fleet[target.node]) else None

    because = [(f"Reason: {reason}", "text")] if reason else []
    return Plan(
        doing="draining", done="drained", noun="node", targets=_nodes(views), question=f"Drain {names_text(_names(views))}?",
        sentences=(*because, *blast.drain_sentences(views, now)), no="leave " + _them(views), yes="drain " + _them(views),
        command=shell("node", "drain", *_names(views), *(["--reason", reason] if reason else [])), changed=changed, send=send,
    )  # fmt: skip


def undrain_plan(views: Sequence[NodeView], now: float) -> Plan:
    async def send(client: AgentClient, target: Target) -> None:
        await client.undrain()

    def changed(fleet: Fleet, target: Target) -> str | None:
        return None if drained(fleet[target.node]) else "takes jobs already"

    return Plan(
        doing="undraining", done="undrained", noun="node", targets=_nodes(views),
        question=f"Let {names_text(_names(views))} start jobs again?", sentences=tuple(blast.undrain_sentences(views, now)),
        no=f"leave {_them(views)} drained", yes="undrain " + _them(views), command=shell("node", "undrain", *_names(views)),
        changed=changed, send=send,
    )  # fmt: skip


def _them(views: Sequence[NodeView]) -> str:
    return "it" if len(views) == 1 else "them"


def pause_plan(views: Sequence[NodeView], order: wire.PauseOrder) -> Plan:
    async def send(client: AgentClient, target: Target) -> None:
        await client.pause_alerts(order)

    what = _what(order.rule, views[0], order.gpu)
    options = [*(["--rule", order.rule] if order.rule else []), *(["--gpu", order.gpu] if order.gpu else [])]
    because = [(f"Reason: {order.reason}", "text")] if order.reason else []
    return Plan(
        doing="pausing alerts of", done="paused alerts of", noun="node", targets=_nodes(views),
        question=f"Pause {what} of {names_text(_names(views))} for {blast.length(order.seconds)}?",
        sentences=(*because, *blast.pause_sentences(views, order)), no="leave them on", yes="pause them",
        command=shell("node", "pause-alerts", *_names(views), "--for", duration_text(order.seconds), *options,
                      *(["--reason", order.reason] if order.reason else [])),
        changed=lambda fleet, target: None, send=send,
    )  # fmt: skip


def resume_plan(views: Sequence[NodeView], rule: str | None = None, gpu: str | None = None) -> Plan:
    """Ends all pauses of the nodes, or those that cover one alert."""
    ending = {view.name: _ending(view, rule, gpu) for view in views}

    async def send(client: AgentClient, target: Target) -> None:
        for pause in ending[target.node] if rule or gpu else ():
            await client.resume_alerts(pause.id)
        if not rule and not gpu:
            await client.resume_alerts()

    def changed(fleet: Fleet, target: Target) -> str | None:
        return None if _ending(fleet[target.node], rule, gpu) else "has no such pause any more"

    wide = (rule or gpu) and any(pause.rule is None and pause.gpu is None for pauses in ending.values() for pause in pauses)
    count = sum(map(len, ending.values()))
    more = " All alerts of the node are among them." if wide else ""
    words = [(f"{counted(count, 'pause')} end{'s' * (count == 1)}: what holds now is told and fires metrics at once.{more}", "text")]
    options = [*(["--rule", rule] if rule else []), *(["--gpu", gpu] if gpu else [])]
    return Plan(
        doing="resuming alerts of", done="resumed alerts of", noun="node", targets=_nodes(views),
        question=f"Resume {_what(rule, views[0], gpu)} of {names_text(_names(views))}?", sentences=tuple(words), no="leave them paused",
        yes="resume them", command=shell("node", "resume-alerts", *_names(views), *options), changed=changed, send=send,
    )  # fmt: skip


def _ending(view: NodeView, rule: str | None, gpu: str | None) -> tuple[wire.AlertPause, ...]:
    if rule is not None:
        return covering(view, rule, gpu)
    pauses = view.info.pauses if view.info is not None else ()
    return pauses if gpu is None else tuple(one for one in pauses if one.rule is None and one.gpu in (None, gpu))


def share_plan(view: NodeView, gpus: Sequence[wire.Gpu], setting: wire.MpsSetting) -> Plan:
    """A GPU that has another job when it comes to it is left out."""
    before = {gpu.uuid: blast.holders(view, gpu.uuid) for gpu in gpus}

    async def send(client: AgentClient, target: Target) -> None:
        await client.mps_set(target.ident, setting)

    def changed(fleet: Fleet, target: Target) -> str | None:
        now = blast.holders(fleet[target.node], target.ident)
        return "is gone" if now is None else None if now == before[target.ident] else "has another job now"

    name, indexes = fmt.clean(view.name), ",".join(str(gpu.index) for gpu in gpus)
    whose = f"GPU {indexes}" if len(gpus) == 1 else f"{len(gpus)} GPUs"
    return Plan(
        doing="setting the share of", done="set the share of", noun="GPU",
        targets=tuple(Target(node=view.name, name=f"GPU {gpu.index} of {name}", ident=gpu.uuid) for gpu in gpus),
        question=f"Set the MPS share of {whose} of {name}?", sentences=tuple(blast.share_sentences(view, gpus, setting)),
        no="leave it", yes="set it", command=shell("mps", view.name, indexes, *share_words(setting)), changed=changed, send=send,
    )  # fmt: skip
