"""The form of a new job: nothing is sent untried, and nothing that was typed is lost."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from agent import wire
from tests.support.fleets import NOW, StubCatalog, gpu, put
from tests.support.jobs import FakeNode, asked_nodes, ident, job_fleet
from tests.support.screens import make_app, press, running, text
from tui.fleet import Fleet
from tui.ui.app import RackrateApp
from tui.ui.job_form import FIELDS, Wrong, candidates, field_of_refusal, named_node, spec_of, why_none
from tui.ui.screens.job import JobScreen
from tui.ui.screens.submit import SubmitScreen
from tui.ui.widgets.form import FormField

DRAFT = {"command": "python train.py --epochs 10", "gpus": "2", "memory": "64G", "time_limit": "8h", "budget": "40usd",
         "name": "vit-l", "project": "vision", "cpus": "8", "interruptible": "yes"}  # fmt: skip


@pytest.fixture(autouse=True)
def no_quote(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quotes ask nodes too: only the tests of quotes have them."""
    monkeypatch.setattr("tui.ui.screens.submit.QUOTE_SECONDS", 1000.0)


async def until(holds: Any, seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.01)


def form_app(draft: dict[str, str] | None = None) -> tuple[RackrateApp, FakeNode, FakeNode]:
    one, two = FakeNode("gpu-01"), FakeNode("gpu-02")
    app, _ = make_app(job_fleet(), **asked_nodes(one, two))
    app._import_slowly = lambda: None  # type: ignore[method-assign]
    app.job_draft = dict(DRAFT if draft is None else draft)
    return app, one, two


def sent(node: FakeNode, method: str = "submit") -> list[wire.JobSpec]:
    return [call[1] for call in node.calls if call[0] == method]


def errors(app: RackrateApp) -> dict[str, str]:
    found = {}
    for field in app.screen.query(FormField):
        said = " ".join(field.query_one("Said").plain.split())  # type: ignore[attr-defined]
        if said:
            found[field.field.key] = said
    return found


# -- what is typed, as a job ---------------------------------------------------------------------------------


def test_every_field_goes_into_the_job() -> None:
    spec = spec_of(DRAFT)
    assert spec.command == ("python", "train.py", "--epochs", "10") and not spec.shell
    assert (spec.gpus, spec.cpus, spec.memory_bytes, spec.time_limit_seconds) == (2, 8, 64 << 30, 28_800)
    assert (spec.budget_usd, spec.name, spec.project, spec.interruptible) == (Decimal(40), "vit-l", "vision", True)
    share = spec_of({"command": "python a.py", "gpu_share": "0.5", "gpu_memory": "20G"})
    assert (share.gpu_share, share.gpu_memory_bytes, share.gpus) == (Decimal("0.5"), 20 << 30, 0)
    shell = spec_of({"command": "a && b 'c", "shell": "yes"})
    assert shell.shell and shell.command == ("a && b 'c",)


@pytest.mark.parametrize(
    ("draft", "key", "part"),
    [
        ({}, "command", "What should run"),
        ({"command": "a 'b"}, "command", "quotation"),
        ({"gpus": "two"}, "gpus", "'two'"),
        ({"gpu_share": "1.5"}, "gpu_share", "below 1"),
        ({"gpu_share": "0.5", "gpus": "1"}, "gpus", "together"),
        ({"gpu_memory": "20G"}, "gpu_memory", "share"),
        ({"memory": "64X"}, "memory", "no size"),
        ({"time_limit": "soon"}, "time_limit", "length of time"),
        ({"budget": "40eur"}, "budget", "EUR"),
        ({"cpus": "-1"}, "cpus", "'-1'"),
        ({"name": "x\x1b[2J"}, "name", "control characters"),
    ],
)
def test_what_is_wrong_is_a_sentence_beside_its_field(draft: dict[str, str], key: str, part: str) -> None:
    with pytest.raises(Wrong) as error:
        spec_of({"command": "python a.py", **draft} if draft else draft)
    sentence = error.value.sentences[key]
    assert part in sentence and "--" not in sentence and sentence[0] == sentence[0].upper()


def test_all_wrong_fields_are_told_at_once() -> None:
    with pytest.raises(Wrong) as error:
        spec_of({"command": "", "memory": "x", "budget": "y", "gpus": "z"})
    assert set(error.value.sentences) == {"command", "memory", "budget", "gpus"}


def test_a_refusal_of_the_node_finds_its_field() -> None:
    for sentence, key in (
        ("9 GPUs are more than the 8 of this node", "gpus"), ("memory above the node's 1.1 TiB", "memory"),
        ("a gpu_share of 0.9 leaves no room", "gpu_share"), ("the time limit is over the node's", "time_limit"),
        ("the queue is full", "node"),
    ):  # fmt: skip
        assert field_of_refusal(sentence) == key


def test_the_first_that_fits_has_free_gpus_no_notice_and_is_never_simulated() -> None:
    fleet = Fleet(StubCatalog())  # type: ignore[arg-type]
    for name, free, fields in (("busy", 0, {}), ("big", 8, {}), ("tight", 2, {}), ("sim", 4, {"simulated": True})):
        gpus = tuple(gpu(i, node=name, users=() if i < free else ("ada",)) for i in range(8))
        put(fleet, name, gpus, **fields)
    order = [view.name for view in candidates(fleet, spec_of(DRAFT), NOW)]
    assert order == ["tight", "big", "busy"]
    assert why_none(fleet, spec_of({**DRAFT, "gpus": "16"}), NOW) == "No node has so many GPUs; the largest has 8."
    with pytest.raises(Wrong, match="did you mean `tight`"):
        named_node(fleet, "tigth", NOW)
    with pytest.raises(Wrong, match="simulated"):
        named_node(fleet, "sim", NOW)
    with pytest.raises(Wrong, match="does not answer"):
        named_node(fleet, "busy", NOW + 100)


# -- the screen ------------------------------------------------------------------------------------------------


async def test_enter_shows_the_dry_run_and_a_second_enter_sends_exactly_that() -> None:
    app, one, two = form_app()
    two.plan = {"not_enforced": ("cpus: no cpuset here",), "warnings": ("the spot node has a notice",)}
    async with running(app, (100, 34)) as pilot:
        await press(pilot, "j", "n", "enter")
        await until(lambda: "Enter sends it to" in text(app))
        name = "gpu-02" if sent(two, "dry_run") and not sent(one, "dry_run") else "gpu-01"
        node = {"gpu-01": one, "gpu-02": two}[name]
        shown = text(app)
        for part in (
            "Dry run",
            "at once",
            "GPUs 0 and 1 share NUMA node 0",
            "0-7 of NUMA node 0",
            "$8.19/h",
            "ada: python train.py",
        ):
            assert part in shown, part
        assert not sent(one) and not sent(two)
        await press(pilot, "enter")
        await until(lambda: isinstance(app.screen, JobScreen))
        assert sent(node) == sent(node, "dry_run")
        assert sent(node)[0].node_usd_per_hour == Decimal("32.7726")
        assert app.fleet.job(name, ident(99)) is not None


async def test_a_named_node_is_asked_alone_and_what_it_cannot_enforce_is_shown() -> None:
    app, one, two = form_app({**DRAFT, "node": "gpu-02"})
    two.plan = {
        "not_enforced": ("cpus: no cpuset here",),
        "starts_now": False,
        "reason": "waits for 2 GPUs",
        "usd_per_hour": None,
    }
    async with running(app, (100, 34)) as pilot:
        await press(pilot, "j", "n", "f5")
        await until(lambda: "Enter sends it to gpu-02" in text(app))
        for part in ("waits for 2 GPUs", "cpus: no cpuset here", "not known"):
            assert part in text(app)
        assert not one.calls or not sent(one, "dry_run")


async def test_a_node_where_it_would_wait_is_passed_over_for_one_where_it_starts() -> None:
    app, one, two = form_app()
    two.plan = {"starts_now": False, "reason": "waits"}
    one.plan = {"starts_now": False, "reason": "waits"}
    async with running(app, (100, 34)) as pilot:
        await press(pilot, "j", "n", "f5")
        await until(lambda: "Enter sends it to" in text(app))
        one.plan = {}
        await press(pilot, "f5")
        await until(lambda: "Enter sends it to gpu-01" in text(app))


async def test_changing_anything_after_the_dry_run_asks_for_another_one() -> None:
    app, one, two = form_app()
    async with running(app, (100, 34)) as pilot:
        await press(pilot, "j", "n", "enter")
        await until(lambda: "Enter sends it to" in text(app))
        await press(pilot, "1")
        assert "of what was typed before" in text(app)
        await press(pilot, "enter")
        await until(lambda: "Enter sends it to" in text(app))
        assert not sent(one) and not sent(two) and len(sent(one, "dry_run") + sent(two, "dry_run")) == 2


async def test_errors_stand_at_their_fields_and_nothing_that_was_typed_is_lost() -> None:
    app, one, two = form_app({**DRAFT, "memory": "64X", "gpus": "many"})
    async with running(app, (100, 34)) as pilot:
        await press(pilot, "j", "n", "enter")
        await until(lambda: errors(app))
        assert set(errors(app)) == {"memory", "gpus"} and "512M or 20G" in errors(app)["memory"]
        assert app.screen.draft == {key: "" for key in (field.key for field in FIELDS)} | DRAFT | {
            "memory": "64X",
            "gpus": "many",
        }  # type: ignore[attr-defined]
        assert app.focused is not None and app.focused.value == "many"  # type: ignore[attr-defined]
        await press(pilot, *["backspace"] * 4, "4")
        assert "gpus" not in errors(app)
        assert not one.calls or not sent(one, "dry_run")


async def test_a_refusal_of_the_node_is_a_sentence_and_keeps_the_form() -> None:
    app, one, two = form_app({**DRAFT, "node": "gpu-01"})
    one.refusals["dry_run"] = "64 GiB of memory are more than the 32 GiB of this node"
    async with running(app, (100, 34)) as pilot:
        await press(pilot, "j", "n", "enter")
        await until(lambda: errors(app))
        assert "more than the 32 GiB" in errors(app)["memory"]
        one.refusals = {"submit": "the queue is full"}
        await press(pilot, "f5")
        await until(lambda: "Enter sends it to" in text(app))
        await press(pilot, "ctrl+s")
        await until(lambda: "It was not sent. gpu-01: the queue is full" in text(app))
        assert isinstance(app.screen, SubmitScreen) and app.screen.draft["command"] == DRAFT["command"]


async def test_leaving_the_form_keeps_what_was_typed() -> None:
    app, _, _ = form_app({})
    async with running(app) as pilot:
        await press(pilot, "j", "n", *"ls", "down", "down", "4", "escape")
        assert not isinstance(app.screen, SubmitScreen)
        await press(pilot, "n")
        assert app.screen.draft["command"] == "ls" and app.screen.draft["gpus"] == "4"  # type: ignore[attr-defined]


async def test_a_node_that_is_looked_at_is_named_in_the_form() -> None:
    app, _, _ = form_app({})
    async with running(app) as pilot:
        await press(pilot, "down", "enter", "n")
        assert app.screen.draft["node"] == "gpu-02"  # type: ignore[attr-defined]


async def test_space_turns_a_switch_and_arrows_walk_through_the_fields() -> None:
    app, _, _ = form_app({})
    async with running(app, (100, 34)) as pilot:
        await press(pilot, "j", "n", *["down"] * 11)
        await press(pilot, "space")
        assert app.screen.draft["interruptible"] == "yes" and "[x]" in text(app)  # type: ignore[attr-defined]
        await press(pilot, "space", "up", "up", *"q?:t")
        assert app.screen.draft["interruptible"] == "" and app.screen.draft["name"] == "q?:t"  # type: ignore[attr-defined]
        assert app.is_running and isinstance(app.screen, SubmitScreen)


async def test_where_all_nodes_are_simulated_the_form_says_that_none_can_run_it() -> None:
    fleet = Fleet(StubCatalog())  # type: ignore[arg-type]
    put(fleet, "sim", (gpu(0),), simulated=True)
    app, _ = make_app(fleet)
    app.job_draft = {"command": "true"}
    async with running(app) as pilot:
        await press(pilot, "j", "n", "enter")
        await until(lambda: "All nodes here are simulated" in " ".join(errors(app).values()))


async def test_20x5_shows_the_field_that_has_the_cursor() -> None:
    app, _, _ = form_app()
    async with running(app, (20, 5)) as pilot:
        await press(pilot, "j", "n", *["tab"] * 4)
        assert "GPU mem…" in text(app)


# -- the quote, and the command line ---------------------------------------------------------------------------


def with_prices(app: RackrateApp) -> None:
    """Real prices, in the place of the stand-in's three."""
    from pricing.catalog import Catalog

    app.fleet.set_catalog(Catalog.embedded())


async def test_the_quote_follows_what_is_typed_and_never_sends_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui.ui.screens.submit.QUOTE_SECONDS", 0.01)
    app, one, two = form_app({})
    with_prices(app)
    async with running(app, (100, 50)) as pilot:
        await press(pilot, "j", "n")
        await until(lambda: "A command, and what it needs" in text(app))
        assert "$ rackrate run" in text(app) and not sent(one, "dry_run")
        app.screen.query_one("#field-time_limit").query_one("Input").value = "2h"  # type: ignore[attr-defined]
        app.screen.query_one("#field-gpus").query_one("Input").value = "1"  # type: ignore[attr-defined]
        await press(pilot, *"./run")
        await until(lambda: "would run on" in text(app) and "of what was typed before" not in text(app))
        shown = " ".join(text(app).split())
        for part in ("1 of 8 A100, $8.19/h, starts at once", "at most $16.38, by its time limit of 2h00m", "(scaled)",
                     "half of the GPU", "$ rackrate run --gpus 1 --time-limit 2h -- ./run"):  # fmt: skip
            assert part in shown, part
        assert not sent(one) and not sent(two) and not app.screen.is_tried  # type: ignore[attr-defined]
        one.refusals["dry_run"] = two.refusals["dry_run"] = "the queue is full"
        await press(pilot, "y")
        await until(lambda: "the queue is full" in text(app))
        app.screen.query_one("#field-gpus").query_one("Input").value = "many"  # type: ignore[attr-defined]
        await until(lambda: "whole number" in text(app))
        assert not errors(app), "what is wrong is told at its field when it is tried, not while one types"


async def test_fields_that_are_seldom_needed_come_when_asked_for_and_the_command_is_copied() -> None:
    app, _, _ = form_app({"command": "python a.py", "priority": "5"})
    copied: list[str] = []
    app.copy_text = lambda text, what: copied.append(text)  # type: ignore[method-assign]
    async with running(app, (80, 24)) as pilot:
        await press(pilot, "j", "n")
        assert "priority" in text(app) and "soft signal" not in text(app)
        await press(pilot, "f8")
        assert "soft signal" in text(app) and "environment" in text(app)
        await press(pilot, *"A=1")
        await press(pilot, "f9")
        assert copied == ["rackrate run --priority 5 --env A=1 -- python a.py"]
        await press(pilot, "f8")
        assert "soft signal" not in text(app) and "environment" in text(app)
        await pilot.resize_terminal(20, 5)
        await pilot.resize_terminal(200, 60)
        await pilot.pause()
        assert copied[0] in text(app)


async def test_on_the_narrowest_screen_labels_leave_room_for_what_is_typed() -> None:
    app, _, _ = form_app({"node": "gpu-02"})
    async with running(app, (20, 6)) as pilot:
        await press(pilot, "j", "n")
        assert " node     gpu-02" in text(app)
        await pilot.resize_terminal(60, 24)
        await until(lambda: " node           gpu-02" in text(app))


async def test_a_job_of_before_fills_the_form_and_tells_what_is_not_taken_over() -> None:
    app, one, _ = form_app({"command": "half typed"})
    one.known = {view.job.id: view.job for view in app.fleet["gpu-01"].jobs}
    async with running(app, (100, 40)) as pilot:
        await press(pilot, "j", "down")
        await press(pilot, "e")
        assert isinstance(app.screen, SubmitScreen)
        draft = app.screen.draft
        assert (draft["command"], draft["gpus"], draft["node"]) == ("python train.py --config vit.yaml", "2", "gpu-01")
        for part in (f"{ident(1)} again", "Not taken over", "empty `node`", "ada's; this one runs as", "--memory 64G"):
            assert part in text(app), part
        await press(pilot, *" -x")
        await press(pilot, "escape", "e")
        assert app.screen.draft["command"].endswith("vit.yaml -x"), "what was typed is kept"  # type: ignore[attr-defined]
        assert app.job_draft == {"command": "half typed"}, "and so is the other form's"
        await press(pilot, "enter")
        await until(lambda: "Enter sends it to gpu-01" in text(app))
        await press(pilot, "enter")
        await until(lambda: isinstance(app.screen, JobScreen))
        assert sent(one)[0].command == ("python", "train.py", "--config", "vit.yaml", "-x")
