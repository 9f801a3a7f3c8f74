"""What can be typed behind `:`: screens by name with what they are to show, and what completes it.

Invariant: every screen that can be opened by itself has a word here (a test goes over `SCREENS`); what is wrong is said with
the spot at which it is wrong. Nothing here touches the app.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from tui.query import QueryError, Words, parse_tree
from tui.query_complete import options

Takes = Literal["", "query", "node", "gpu", "job", "theme", "filter"]


class Word(NamedTuple):
    """`scope` is the screen that it opens (empty: none); `action` the action that does the same without arguments."""

    name: str
    title: str
    takes: Takes = ""
    also: tuple[str, ...] = ()
    scope: str = ""
    action: str = ""

    @property
    def usage(self) -> str:
        """`jobs [QUERY]`."""
        shown = {"": "", "query": " [QUERY]", "node": " NODE", "gpu": " NODE INDEX", "job": " ID", "theme": " [NAME]", "filter": " NAME"}
        return self.name + shown[self.takes]


WORDS: tuple[Word, ...] = (
    Word("fleet", "The fleet, with this filter", "query", ("nodes",), "fleet"),
    Word("node", "One node", "node", (), "node"),
    Word("gpu", "One GPU of a node", "gpu", (), "gpu"),
    Word("jobs", "Jobs of the fleet", "query", (), "jobs", "jobs"),
    Word("job", "One job", "job", (), "job"),
    Word("submit", "Submit a new job", "", ("run",), "submit", "submit"),
    Word("costs", "Costs of the month", "query", ("cost",), "costs", "costs"),
    Word("curves", "Curves of a job", "job", (), "curves"),
    Word("budgets", "Budgets", "query", ("budget",), "budgets", "budgets"),
    Word("advice", "Advice: what would save money", "", ("advise",), "advice", "advice"),
    Word("market", "Market: what a GPU-hour costs", "query", ("prices",), "market", "market"),
    Word("alerts", "Alerts", "query", ("alert",), "alerts", "alerts"),
    Word("events", "Events: what happened", "query", ("event",), "events", "events"),
    Word("help", "Help: all keys, signs and filters", "", ("keys",), "help", "help"),
    Word("theme", "Another theme", "theme", (), "", "theme"),
    Word("forget", "Forget a filter that is kept", "filter", ()),
    Word("quit", "Quit", "", ("q", "exit"), "", "quit"),
)
BY_NAME: Mapping[str, Word] = {name: word for word in WORDS for name in (word.name, *word.also)}
CHANGING = ("submit",)
"""Not where nothing may be changed."""


class World(Protocol):
    """What there is to be opened."""

    now: float
    filters: Mapping[str, str]
    themes: Sequence[str]

    def nodes(self) -> list[str]:
        """Names of all nodes."""

    def gpus(self, node: str) -> list[str]:
        """Indices of the GPUs of a node."""

    def jobs(self) -> Iterable[tuple[str, str]]:
        """(id, node) of all jobs, the unended ones first."""

    def rows(self, word: str) -> Callable[[], Iterable[Any]]:
        """Rows of that screen, where values that could be typed come from."""


class WrongWord(Exception):
    """`start` to `end` of the text is wrong; `why` is a sentence."""

    def __init__(self, start: int, end: int, why: str) -> None:
        super().__init__(why)
        self.start, self.end, self.why = start, max(end, start + 1), why


class Goto(NamedTuple):
    """`arguments` as the word takes them: a query, a node, a node and an index, a job with its node."""

    word: Word
    arguments: tuple[str, ...] = ()


def words_of(name: str) -> Words:
    """What can be asked of the rows of a screen."""
    from tui.query import NODE_WORDS

    match name:
        case "jobs":
            from tui.job_rows import JOB_WORDS

            return JOB_WORDS
        case "market":
            from tui.market_view import MARKET_WORDS

            return MARKET_WORDS
        case "alerts":
            from tui.query_rows import ALERT_WORDS

            return ALERT_WORDS
        case "events":
            from tui.events import EVENT_WORDS

            return EVENT_WORDS
        case "costs":
            from tui.ui.widgets.costs_table import COST_WORDS

            return COST_WORDS
        case "budgets":
            from tui.ui.widgets.budgets_table import BUDGET_WORDS

            return BUDGET_WORDS
    return NODE_WORDS


def split(text: str) -> tuple[str, str, int]:
    """The first word, the rest, and where the rest begins."""
    plain = text.lstrip().removeprefix(":")
    lead = len(text) - len(plain)
    name, blank, rest = plain.partition(" ")
    return name, rest.strip(), lead + len(name) + len(blank) + len(rest) - len(rest.lstrip())


def is_word(text: str) -> bool:
    """Whether it begins with a word that is known."""
    return split(text)[0] in BY_NAME


def read(text: str, world: World) -> Goto:
    """What is meant. Raises `WrongWord`."""
    name, rest, start = split(text)
    word = BY_NAME.get(name)
    if word is None:
        begin = text.find(name) if name else 0
        raise WrongWord(begin, begin + len(name), _unknown(name, list(BY_NAME), "screen or command", "Tab shows them"))
    if not word.takes:
        if rest:
            raise WrongWord(start, len(text), f"`{word.name}` takes nothing more.")
        return Goto(word)
    return Goto(word, _READ[word.takes](word, rest, start, world))


def _unknown(name: str, known: Sequence[str], what: str, else_: str) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f"there is no {what} `{name}`; {f'did you mean `{near[0]}`?' if near else f'{else_}.'}"


def _query(word: Word, rest: str, start: int, world: World) -> tuple[str, ...]:
    if not rest:
        return ()
    try:
        parse_tree(rest, words_of(word.name), world.filters)
    except QueryError as error:
        raise WrongWord(start + error.start, start + error.end, error.why.rstrip(".") + "." * (error.why[-1:] != "?")) from None
    return (rest,)


def _node(word: Word, rest: str, start: int, world: World) -> tuple[str, ...]:
    nodes = world.nodes()
    if not rest:
        raise WrongWord(start, start + 1, "the name of a node is missing; Tab shows them.")
    if rest not in nodes:
        raise WrongWord(start, start + len(rest), _unknown(rest, nodes, "node", "Tab shows them"))
    return (rest,)


def _gpu(word: Word, rest: str, start: int, world: World) -> tuple[str, ...]:
    node, _, index = rest.partition(" ")
    _node(word, node, start, world)
    at, index = start + rest.rfind(index), index.strip()
    known = world.gpus(node)
    if index not in known:
        why = f"the GPUs of {node} are {', '.join(known)}" if known else f"no GPU of {node} is known"
        raise WrongWord(at if index else start + len(rest) + 1, start + len(rest), f"{why}.")
    return (node, index)


def _job(word: Word, rest: str, start: int, world: World) -> tuple[str, ...]:
    if not rest:
        raise WrongWord(start, start + 1, "the id of a job is missing; Tab shows them.")
    found = [(ident, node) for ident, node in world.jobs() if ident.startswith(rest)]
    exact = [one for one in found if one[0] == rest] or found
    if len({ident for ident, _ in exact}) > 1:
        raise WrongWord(start, start + len(rest), f"{len(exact)} jobs begin with `{rest}`; Tab shows them.")
    if not exact:
        raise WrongWord(start, start + len(rest), f"no job is known whose id begins with `{rest}`.")
    return exact[0]


def _named(known: Callable[[World], Sequence[str]], what: str) -> Callable[[Word, str, int, World], tuple[str, ...]]:
    def reader(word: Word, rest: str, start: int, world: World) -> tuple[str, ...]:
        if not rest and word.takes == "theme":
            return ()
        name = rest.removeprefix("@")
        if name not in known(world):
            raise WrongWord(start, start + max(1, len(rest)), _unknown(name, known(world), what, "Tab shows them"))
        return (name,)

    return reader


_READ: Mapping[str, Callable[[Word, str, int, World], tuple[str, ...]]] = {
    "query": _query, "node": _node, "gpu": _gpu, "job": _job,
    "theme": _named(lambda world: world.themes, "theme"),
    "filter": _named(lambda world: list(world.filters), "filter that is kept,"),
}  # fmt: skip


def completions(text: str, world: World, most: int = 50) -> list[str]:
    """Whole texts that what is typed may become."""
    name, _, start = split(text)
    word, lead = BY_NAME.get(name), text[: len(text) - len(text.lstrip())]
    if word is None or " " not in text.lstrip().removeprefix(":"):
        colon = ":" * text.lstrip().startswith(":")
        names = [each.name for each in WORDS if each.name.startswith(name)]
        return [f"{lead}{colon}{one}{' ' * bool(BY_NAME[one].takes)}" for one in names]
    begin, typed = text[:start], text[start:]
    match word.takes:
        case "query":
            found = options(typed, words_of(word.name), world.rows(word.name), world.now, world.filters)
            return [begin + typed[: found.start] + term for term in found.terms][:most]
        case "gpu" if " " in typed:
            node, _, index = typed.partition(" ")
            return [f"{begin}{node} {one}" for one in world.gpus(node) if one.startswith(index.strip())]
        case "node" | "gpu":
            more = " " * (word.takes == "gpu")
            return [f"{begin}{one}{more}" for one in beginning(world.nodes(), typed)][:most]
        case "job":
            return [begin + one for one in beginning([ident for ident, _ in world.jobs()], typed)][:most]
        case "theme":
            return [begin + one for one in beginning(world.themes, typed)]
        case "filter":
            return [begin + one for one in beginning(sorted(world.filters), typed.removeprefix("@"))]
    return []


def beginning(names: Iterable[str], typed: str) -> list[str]:
    """Those that begin with what is typed, then those that hold it."""
    fitting = [name for name in names if typed.casefold() in name.casefold()]
    return sorted(fitting, key=lambda name: not name.casefold().startswith(typed.casefold()))
