"""`node drain|undrain|pause-alerts|resume-alerts`, `mps`, and many jobs at once: in this process, on real servers on loopback."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from agent import wire
from tests.support.cli import Done, rackrate_here
from tests.support.job_service import GPU, JobService
from tests.support.job_site import Site, job_site
from tui.errors import WrongUsage
from tui.node_orders import typed_pause, typed_share

Command = Callable[..., Done]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    services = (JobService("gpu-01", usd_per_hour=Decimal(4)), JobService("gpu-02"))
    with job_site(tmp_path_factory.mktemp("home"), *services, prices={"gpu-01": "32.00", "gpu-02": "20.00"}) as site:
        yield site


@pytest.fixture
def site(shared: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """The same two nodes for every test, as at their start."""
    monkeypatch.setenv("RACKRATE_HOME", str(shared.home))
    shared.empty()
    for agent in shared._agents.values():
        shared.do(agent.drain.lift)
        shared.do(agent.pauses.end)
        shared.do(agent.orders_changed)
    return shared


@pytest.fixture
def command(site: Site, capfdbinary: pytest.CaptureFixture[bytes]) -> Command:
    return lambda *words: rackrate_here(capfdbinary, *words)


class Terminal(io.StringIO):
    """Somebody who answers."""

    def isatty(self) -> bool:
        return True


def answer(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(text))


def test_nodes_are_drained_by_name_and_by_query_and_say_why_jobs_wait(site: Site, command: Command) -> None:
    site.jobs["gpu-01"].submit(wire.JobSpec(command=("true",), gpus=1, user="ada"), _owner())
    done = command("node", "drain", "gpu-01", "--reason", "new fan", "--yes")
    assert done.code == 0 and done.out == "gpu-01  drained: new fan\n"
    for part in ("Drain gpu-01?", "No job starts there any more", "1 running job (of ada) goes on to the end", "$32.00/h is paid on"):
        assert part in done.err, done.err
    drain = site._agents["gpu-01"].info.drain
    assert drain is not None and drain.reason == "new fan" and "token node" in drain.by
    waiting = site.jobs["gpu-01"].submit(wire.JobSpec(command=("true",)), _owner())
    assert waiting.reason == "the node is drained: new fan"
    assert command("node", "drain", "node:gpu", "--yes", "--json").json()[1]["drain"]["reason"] is None
    assert [one["error"] for one in command("node", "undrain", "gpu-01", "gpu-02", "--yes", "--json").json()] == [None, None]
    assert site._agents["gpu-01"].info.drain is None and site.jobs["gpu-01"].taken is None


def _owner():
    from agent.security import OWNER

    return OWNER


def test_it_asks_and_only_a_clear_yes_is_one(site: Site, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    done = command("node", "drain", "gpu-01")
    assert done.code == 2 and "nobody can be asked here; give --yes" in done.err and site._agents["gpu-01"].info.drain is None
    for text in ("\n", "n\n", "yep\n", ""):
        answer(monkeypatch, text)
        done = command("node", "drain", "gpu-01")
        assert done.code == 1 and "Go on? [y/N]" in done.err and "nothing was done." in done.err
    assert site._agents["gpu-01"].info.drain is None
    answer(monkeypatch, "y\n")
    assert command("node", "drain", "gpu-01").code == 0 and site._agents["gpu-01"].info.drain is not None


def test_what_is_no_node_and_no_query_is_said(site: Site, command: Command) -> None:
    assert "no node is named `gpu-09`" in command("node", "drain", "gpu-09", "--yes").err
    assert command("node", "drain", "gpu:", "util<<", "--yes").code == 2
    assert "what about the node?" in command("node").err
    assert command("node", "drain", "gpu-01", "--reason", "a\nb", "--yes").code == 2
    assert command("node", "drain").code == 2


def test_alerts_are_paused_and_resumed_by_rule_and_gpu(site: Site, command: Command) -> None:
    done = command("node", "pause-alerts", "gpu-01", "--for", "2h", "--rule", "gpu_hot", "--gpu", "0", "--reason", "new fan", "--yes")
    assert done.code == 0 and "gpu_hot paused until" in done.out and "fire no metric for 2 h" in done.err
    (pause,) = site._agents["gpu-01"].info.pauses
    assert (pause.rule, pause.gpu, pause.reason) == ("gpu_hot", GPU, "new fan")
    assert command("node", "pause-alerts", "gpu-01", "gpu-02", "--for", "1d", "--yes").code == 0
    assert len(site._agents["gpu-01"].info.pauses) == 2
    done = command("node", "resume-alerts", "gpu-01", "--rule", "gpu_hot", "--yes")
    assert "It ends 1 pause." in done.err and [one.rule for one in site._agents["gpu-01"].info.pauses] == [None]
    assert command("node", "resume-alerts", "gpu-01", "gpu-02", "--yes").code == 0
    assert site._agents["gpu-02"].info.pauses == ()
    for words, sentence in (
        (("--for", "soon"), "--for: `soon` is no length of time"), (("--for", "90d"), "for 30 d at most"),
        (("--for", "1h", "--rule", "gpu_warm"), "there is no rule 'gpu_warm'"), (("--for", "1h", "--gpu", "7"), "has no GPU `7`"),
    ):  # fmt: skip
        done = command("node", "pause-alerts", "gpu-01", *words, "--yes")
        assert done.code == 2 and sentence in done.err, done.err


def test_of_nodes_some_of_which_fail_the_others_are_done_and_the_code_is_4(tmp_path: Path, monkeypatch, capfdbinary) -> None:
    with job_site(tmp_path, JobService("up"), JobService("down")) as site:
        monkeypatch.setenv("RACKRATE_HOME", str(site.home))
        site.stop_node("down")
        done = rackrate_here(capfdbinary, "node", "drain", "up", "down", "--yes")
        assert done.code == 4 and done.out == "up  drained\n" and "down: 127.0.0.1 port" in done.err
        done = rackrate_here(capfdbinary, "node", "drain", "down", "--yes", "--json")
        assert done.code == 3 and "not reachable" in done.json()[0]["error"]
        done = rackrate_here(capfdbinary, "node", "undrain", "node:up", "--yes")
        assert done.code == 0 and "down: 127.0.0.1 port" in done.err, "who was not asked is said"


def test_the_sharing_of_a_gpu_is_shown_and_set(site: Site, command: Command) -> None:
    done = command("mps", "gpu-01", "0")
    assert done.code == 0 and done.out.split()[7:9] == ["0", "off"]
    done = command("mps", "gpu-01", "all", "--share", "50%", "--memory", "8G", "--yes")
    assert done.code == 0 and "Set the MPS share of GPU 0 of gpu-01?" in done.err and "50%" in done.out and "8.0G" in done.out
    asked = site.jobs["gpu-01"].mps_states[GPU]
    assert (asked.active_thread_percentage, asked.pinned_memory_bytes) == (Decimal(50), 8 << 30)
    assert command("mps", "gpu-01", "0", "--json").json()[0]["active_thread_percentage"] == "50"
    for words, sentence in (
        (("gpu-01", "3"), "gpu-01 has no GPU 3"), (("gpu-01", "x"), "is no GPU of a node"), (("gpu-09", "0"), "no node named `gpu-09`"),
        (("gpu-01", "0", "--share", "50"), "write 50% or a part of one"), (("gpu-01", "0", "--share", "0"), "is no share"),
        (("gpu-01", "0", "--memory", "lots"), "is no size"), (("gpu-01", "0", "--share", "1e5"), "is no share"),
    ):  # fmt: skip
        done = command("mps", *words)
        assert done.code == 2 and sentence in done.err, done.err


def test_read_only_refuses_them_all_and_still_shows(site: Site, command: Command) -> None:
    for words in (
        ("node", "drain", "gpu-01"), ("node", "undrain", "gpu-01"), ("node", "pause-alerts", "gpu-01", "--for", "1h"),
        ("node", "resume-alerts", "gpu-01"), ("mps", "gpu-01", "0", "--share", "50%"), ("job", "signal", "USR1", "1", "2"),
    ):  # fmt: skip
        done = command("--read-only", *words)
        assert done.code == 2 and "--read-only was given" in done.err
    assert command("--read-only", "mps", "gpu-01", "0").code == 0


def test_several_jobs_are_signalled_at_once_and_more_than_ten_are_asked_about(
    site: Site, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = site.jobs["gpu-01"]
    ids = [jobs.submit(wire.JobSpec(command=("true",), user="ada"), _owner()).id for _ in range(12)]
    assert command("job", "signal", "USR1", *ids[:2]).code == 0
    assert [asked[1] for asked in jobs.asked if asked[0] == "signal"] == ids[:2]
    done = command("job", "cancel", *ids)
    assert done.code == 2 and "Stop 12 jobs?" in done.err and "of ada: 12 running" in done.err
    answer(monkeypatch, "11\n")
    assert command("job", "cancel", *ids).code == 1 and not [asked for asked in jobs.asked if asked[0] == "cancel"]
    answer(monkeypatch, "12\n")
    assert command("job", "cancel", *ids).code == 0 and len([asked for asked in jobs.asked if asked[0] == "cancel"]) == 12
    done = command("job", "cancel", *ids[:2], "--yes")
    assert done.code == 1 and "has ended already" in done.err


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("0", "write the GPU"), ("0 50%% 8G", "is no size"), ("0 50% 25%", "one share"), ("0 8G 4G", "one share"), ("x 50%", "is no GPU"), ("0 150%", "is no share")],
)
def test_a_share_that_cannot_be_read_is_said(text: str, sentence: str) -> None:
    with pytest.raises(WrongUsage, match=sentence):
        typed_share(text)


def test_shares_and_pauses_as_people_type_them() -> None:
    assert typed_share("all .25") == (None, wire.MpsSetting(active_thread_percentage=Decimal("25.00")))
    assert typed_share("1,1,0 512M") == ((1, 0), wire.MpsSetting(pinned_memory_bytes=512 << 20))
    assert typed_pause(" 1h30m  new fan ") == (5400, "new fan") and typed_pause("2h") == (7200, None)


def test_the_apps_equivalent_commands_are_read_back_by_these(site: Site) -> None:
    """What a dialog shows is a command line that this program takes."""
    import shlex

    from tests.support.fleets import NOW
    from tests.support.jobs import job_fleet
    from tui.cli import build_parser
    from tui.node_orders import pause_order
    from tui.ui import node_actions as plans
    from tui.ui.job_actions import signal_plan, stop_plan

    fleet = job_fleet()
    views, jobs = [fleet["gpu-01"], fleet["gpu-02"]], list(fleet.jobs())[:3]
    setting = wire.MpsSetting(active_thread_percentage=Decimal("12.5"), pinned_memory_bytes=3 << 20)
    for plan in (
        plans.drain_plan(views, "a 'b' $c", NOW), plans.undrain_plan(views, NOW), plans.resume_plan(views), stop_plan(jobs, NOW),
        plans.pause_plan(views, pause_order(90, "x", "gpu_hot", "GPU-1")), signal_plan(jobs, "USR1"),
        plans.share_plan(views[0], views[0].gpus[:2], setting),
    ):  # fmt: skip
        words = shlex.split(plan.command)
        arguments = build_parser().parse_args(words[1:])
        assert words[0] == "rackrate" and (getattr(arguments, "node", None) or arguments.job)
    assert arguments.share == "12.5%" and arguments.memory == "3M"
