"""What is typed into the submit form, made into a job: the same rules, and the same sentences, as `rackrate run`.

Invariant: each wrong value is told beside its field, all of them at once; nothing is asked of a node before all are right.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterable, Mapping

import msgspec

from agent import wire
from tui.errors import WrongUsage
from tui.fleet import Fleet, NodeView

NODE = "node"
COMMAND = "command"
Draft = Mapping[str, str]
"""Field -> what is typed; a switch is `yes` or empty."""


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field. `key` is that of the option of `rackrate run`; `side` 0 and 3: over the whole width, 1 and 4
    left, 2 and 5 right."""

    key: str
    label: str
    hint: str
    side: int
    switch: bool = False
    more: bool = False
    """Shown when it is asked for, or when something is in it."""
    many: bool = False
    """Several texts, as words of a shell."""


FIELDS: tuple[Field, ...] = (
    Field(key=COMMAND, label="command", hint="such as python train.py --epochs 10", side=0),
    Field(key=NODE, label="node", hint="first that fits", side=1),
    Field(key="gpus", label="GPUs", hint="0", side=1),
    Field(key="gpu_share", label="or share", hint="none, or 0.5 of one", side=1),
    Field(key="gpu_memory", label="GPU memory", hint="of a share: 20G", side=1),
    Field(key="cpus", label="CPUs", hint="no limit, or 8", side=1),
    Field(key="memory", label="memory", hint="no limit, or 64G", side=1),
    Field(key="time_limit", label="time limit", hint="no limit, or 8h", side=2),
    Field(key="budget", label="budget", hint="none, or 40usd", side=2),
    Field(key="name", label="name", hint="what to call it", side=2),
    Field(key="project", label="project", hint="whom it is for", side=2),
    Field(key="interruptible", label="interruptible", hint="if others need it", side=2, switch=True),
    Field(key="shell", label="shell", hint="run by /bin/sh", side=2, switch=True),
    Field(key="env", label="environment", hint="such as NAME=value OTHER='two words'", side=3, more=True, many=True),
    Field(key="chdir", label="folder", hint="of the node, to run in", side=3, more=True),
    Field(key="after", label="after", hint="ids of jobs that have to end well", side=3, more=True, many=True),
    Field(key="priority", label="priority", hint="0, higher goes first", side=4, more=True),
    Field(key="retries", label="retries", hint="0", side=4, more=True),
    Field(key="deadline", label="deadline", hint="none, or +6h, 18:00", side=4, more=True),
    Field(key="stop_signal", label="soft signal", hint="TERM", side=5, more=True),
    Field(key="grace", label="grace", hint="30s, to the kill", side=5, more=True),
    Field(key="pids", label="processes", hint="at most", side=5, more=True),
)
LABELS = {field.key: field.label for field in FIELDS}
_OPTION = re.compile(r"--([a-z]+(?:-[a-z]+)*)")
_WORDS = (
    ("gpu_share", "share"), ("gpu_memory", "GPU memory|pinned"), ("gpus", "GPU"), ("memory", "memory"), ("cpus", "CPU"),
    ("time_limit", "time limit"), ("budget", "budget|dollar"), ("project", "project"), (COMMAND, "command|program|shell"),
    ("after", "wait for|no such job"), ("stop_signal", "signal"), ("name", "name"),
)  # fmt: skip


class Wrong(Exception):
    """Field -> sentence."""

    def __init__(self, sentences: Mapping[str, str]) -> None:
        super().__init__(next(iter(sentences.values()), ""))
        self.sentences = dict(sentences)


def spec_of(draft: Draft) -> wire.JobSpec:
    """The job that is asked for. Raises `Wrong`."""
    from tui import jobspec

    wrong: dict[str, str] = {}
    words = _command(draft, wrong)
    options = {field.key: _option(field, draft, wrong) for field in FIELDS if field.key not in (COMMAND, NODE)}
    for key, value in options.items():
        try:  # alone: what is wrong only together with others is told below
            jobspec.read({key: value}, ["true"])
        except WrongUsage as error:
            typed = "" if isinstance(value, list) else value
            if str(error).startswith((f"{_flag(key)} {typed}", f"{_flag(key)}:")):
                wrong[key] = _in_form_words(str(error), key)
    if wrong:
        raise Wrong(wrong)
    try:
        return jobspec.read(options, words).spec
    except WrongUsage as error:
        raise Wrong({_field_of(str(error)): _in_form_words(str(error))}) from None


def _option(field: Field, draft: Draft, wrong: dict[str, str]) -> str | bool | list[str] | None:
    text = draft.get(field.key, "").strip()
    if field.many and text:
        try:
            return shlex.split(text)
        except ValueError as error:
            wrong[field.key] = f"{str(error).capitalize()}: close the quotation."
            return None
    return bool(text) if field.switch else text or None


def command_line(draft: Draft) -> str:
    """The same as a command of a shell, also of what is not right yet; only an open quotation is left out."""
    from tui import job_command

    wrong: dict[str, str] = {}
    options = {field.key: _option(field, draft, wrong) for field in FIELDS if field.key != COMMAND}
    return job_command.line(options, _command(draft, wrong))


def _command(draft: Draft, wrong: dict[str, str]) -> list[str]:
    text = draft.get(COMMAND, "").strip()
    if not text:
        wrong[COMMAND] = "What should run? For example: python train.py"
        return []
    if draft.get("shell"):
        return [text]
    try:
        return shlex.split(text)
    except ValueError as error:
        wrong[COMMAND] = f"{str(error).capitalize()}: close the quotation."
        return []


def _field_of(sentence: str) -> str:
    for name in _OPTION.findall(sentence):
        if (key := name.replace("-", "_")) in LABELS:
            return key
    return COMMAND


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")


def _in_form_words(sentence: str, key: str = "") -> str:
    """`--gpu-share 2: a share is ...` as it reads beside the field."""
    if key and sentence.startswith(_flag(key)):
        sentence = sentence.partition(": ")[2] or sentence
    shown = _OPTION.sub(lambda match: f"`{LABELS.get(match[1].replace('-', '_'), match[1])}`", sentence)
    return shown[:1].upper() + shown[1:]


def field_of_refusal(sentence: str) -> str:
    """The field that an agent's sentence is about, by its words; the node's where none is named."""
    return next((key for key, words in _WORDS if re.search(words, sentence)), NODE)


def named_node(fleet: Fleet, name: str, now: float) -> NodeView:
    """The node that was typed. Raises `Wrong`."""
    if name not in fleet:
        near = difflib.get_close_matches(name, [view.name for view in fleet], 1, 0.4)
        raise Wrong(
            {NODE: f"There is no node `{name}`{f'; did you mean `{near[0]}`?' if near else '; empty: the first that fits.'}"}
        )
    view = fleet[name]
    if view.info is not None and view.info.simulated:
        raise Wrong({NODE: f"{name} is simulated: it runs no jobs."})
    if view.state(now) == "lost":
        raise Wrong({NODE: f"{name} does not answer: {view.error or 'its stream is silent'}."})
    return view


def candidates(fleet: Fleet, spec: wire.JobSpec, now: float) -> list[NodeView]:
    """Nodes that may take the job, the likeliest first: enough free GPUs, no notice, the tightest fit, the cheapest."""
    wanted = 1 if spec.gpu_share is not None else spec.gpus
    views = [
        view for view in fleet
        if view.info is not None and not view.info.simulated and view.state(now) == "live" and len(view.gpus) >= wanted
    ]  # fmt: skip

    def rank(view: NodeView) -> tuple[bool, bool, int, float, str]:
        free = sum(use.held is False and use.gpu.state == "ok" for use in view.uses)
        price = view.usd_per_hour
        return (
            view.notice is not None,
            free < wanted,
            abs(free - wanted),
            float(price) if price is not None else 1e9,
            view.name,
        )

    return sorted(views, key=rank)


def why_none(fleet: Fleet, spec: wire.JobSpec, now: float) -> str:
    """Why no node may take it, in a sentence."""
    known = [view for view in fleet if view.info is not None and view.state(now) != "lost"]
    if not known:
        return "No node answers now."
    if all(view.info is not None and view.info.simulated for view in known):
        return "All nodes here are simulated: they run no jobs."
    most = max((len(view.gpus) for view in known if view.info and not view.info.simulated), default=0)
    return f"No node has so many GPUs; the largest has {most}."


def with_price(spec: wire.JobSpec, view: NodeView) -> wire.JobSpec:
    """With the node's price as the catalog here says, for a node that does not know its own."""
    price = view.quote.price if view.quote is not None and view.usd_per_hour is not None else None
    return msgspec.structs.replace(spec, node_usd_per_hour=price.amount if price is not None else None)


def plan_lines_of(plan: wire.JobPlan) -> Iterable[tuple[str, str, str]]:
    """(label, sentence, style) of a dry run, most wanted first."""
    from tui import format as fmt

    yield "node", plan.node, "strong"
    yield ("starts", "at once", "accent") if plan.starts_now else ("waits", plan.reason, "idle")
    if plan.starts_now and plan.reason:
        yield "because", plan.reason, "dim"
    if plan.gpu_indexes or plan.gpus:
        yield "GPUs", " ".join(map(str, plan.gpu_indexes)) or " ".join(plan.gpus), "text"
    if plan.cpus:
        yield "CPUs", plan.cpus + (f" of NUMA node {plan.numa_node}" if plan.numa_node is not None else ""), "text"
    yield "price", f"{fmt.usd(plan.usd_per_hour)}/h" if plan.usd_per_hour is not None else "not known", "strong"
    for place, sentence in enumerate(plan.not_enforced):
        yield "not enforced" if not place else "", sentence, "idle"
    for place, sentence in enumerate(plan.warnings):
        yield "beware" if not place else "", sentence, "idle"
    yield "as", f"{plan.user}: {shlex.join(plan.argv)}", "dim"
