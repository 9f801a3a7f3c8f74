"""Runs over several nodes: reserved on all or on none, then started together, with stand-in managers on loopback."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from agent import wire
from agent.errors import JobConflict, JobFault
from agent.jobs.actor import Actor
from tests.support.job_service import JobService
from tests.support.job_site import Site, job_site
from tui import gang
from tui.cli import main
from tui.commands.follow import Lines
from tui.config import NodeConfig
from tui.errors import WrongUsage
from tui.job_nodes import Place
from tui.jobspec import Wanted

NAMES = ("na", "nb", "nc")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("RACKRATE_HOME", str(tmp_path))
    services = [JobService(name, usd_per_hour=Decimal(number + 1)) for number, name in enumerate(NAMES)]
    with job_site(tmp_path, *services) as site:
        yield site


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = int(main(arguments))
    out, err = capsys.readouterr()
    return code, out, err


def states(site: Site) -> list[list[str]]:
    return [[job.cause or job.state for job in site.jobs[name].kept.values()] for name in NAMES]


def test_the_cheapest_nodes_are_reserved_and_started_with_one_rendezvous(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.jobs["na"].taken = "job x holds its GPUs"
    code, out, err = run(capsys, "run", "--nodes", "2", "--gpus", "4", "--json", "--", "torchrun", "train.py")
    assert code == 0, err
    assert states(site) == [[], ["running"], ["running"]] and "nb, nc start it now, $20.00 an hour together" in err
    first, second = ([*site.jobs[name].specs.values()][0].gang for name in ("nb", "nc"))
    assert (
        first and second and first.id == second.id and (first.nodes, first.least_nodes, first.processes_per_node) == (2, 2, 4)
    )
    assert (first.host_here, second.host_here) == (True, False)
    starts = [asked for name in ("nb", "nc") for asked in site.jobs[name].asked if asked[0] == "start"]
    [endpoint] = {asked[2] for asked in starts}
    host, _, port = endpoint.rpartition(":")
    assert len(starts) == 2 and host == "127.0.0.1" and int(port) in gang.PORTS
    assert {record["gang"] for record in json.loads(out)} == {first.id} and len(first.id) == 12


def test_a_run_that_goes_on_without_a_node_says_so_to_torch(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--nodes", "3", "--on-node-loss", "continue", "--rendezvous", "10.0.0.5:29500", "--processes-per-node", "2")
    code, out, err = run(capsys, "run", *arguments, "--", "torchrun", "train.py")
    assert code == 0 and len(out.split()) == 3, err
    for name in NAMES:
        [spec] = site.jobs[name].specs.values()
        assert spec.gang and (spec.gang.nodes, spec.gang.least_nodes, spec.gang.processes_per_node) == (3, 1, 2)
        assert site.jobs[name].asked[-1][2] == "10.0.0.5:29500"


def test_one_refusal_gives_every_place_back(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(spec: wire.JobSpec, actor: Actor) -> wire.Job:
        raise JobConflict("another job was faster")

    site.jobs["nb"].reserve = refuse  # type: ignore[method-assign]
    code, out, err = run(capsys, "run", "--nodes", "3", "--", "torchrun", "x")
    assert (code, out) == (
        1,
        "",
    ) and "nb: another job was faster. Nothing runs: the places on the other nodes are given back." in err
    assert states(site) == [["cancelled"], [], ["cancelled"]]


def test_a_node_that_does_not_say_in_time_gives_every_place_back(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = site.jobs["nc"]
    reserve = jobs.reserve

    async def slow(spec: wire.JobSpec, actor: Actor) -> wire.Job:
        job = reserve(spec, actor)
        await asyncio.sleep(30)
        return job

    jobs.reserve = slow  # type: ignore[method-assign, assignment]
    monkeypatch.setattr(gang.run, "__kwdefaults__", {**gang.run.__kwdefaults__, "reserve_seconds": 5.0})
    code, out, err = run(capsys, "run", "--nodes", "3", "--", "torchrun", "x")
    assert (code, out) == (3, "") and "nc: has not said within 5 s whether it holds a place" in err
    assert states(site) == [["cancelled"]] * 3, "also the one whose answer never came"


def test_a_start_that_fails_stops_the_parts_that_run(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(id: str, endpoint: str, actor: Actor) -> wire.Job:
        raise JobConflict("its place is gone")

    site.jobs["nb"].start_reserved = refuse  # type: ignore[method-assign]
    code, _, err = run(capsys, "run", "--nodes", "3", "--", "torchrun", "x")
    assert code == 1 and "nb: its place is gone" in err and states(site) == [["cancelled"]] * 3


def test_ctrl_c_between_the_phases_gives_every_place_back(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = site.jobs["nc"]
    reserve = jobs.reserve
    main_thread = threading.main_thread().ident or 0

    async def slow(spec: wire.JobSpec, actor: Actor) -> wire.Job:
        job = reserve(spec, actor)
        while not all(site.jobs[name].kept for name in NAMES):
            await asyncio.sleep(0.01)
        signal.pthread_kill(main_thread, signal.SIGINT)
        await asyncio.sleep(30)
        return job

    jobs.reserve = slow  # type: ignore[method-assign, assignment]
    code, out, _ = run(capsys, "run", "--nodes", "3", "--", "torchrun", "x")
    assert (code, out) == (130, "") and states(site) == [["cancelled"]] * 3


def test_too_few_nodes_start_nothing(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.jobs["na"].taken = "job x holds its GPUs"
    code, out, err = run(capsys, "run", "--nodes", "3", "--", "torchrun", "x")
    assert (code, out) == (
        1,
        "",
    ) and "only 2 of the 3 nodes that are needed would start it now (na: job x holds its GPUs)" in err
    code, _, err = run(capsys, "run", "--nodes", "2", "--node", "na", "--node", "nb", "--", "torchrun", "x")
    assert code == 1 and states(site) == [[], [], []]


def test_a_dry_run_shows_each_node_and_reserves_nothing(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "run", "--nodes", "2", "--gpus", "1", "--dry-run", "--json", "--", "torchrun", "x")
    assert code == 0 and [plan["node"] for plan in json.loads(out)] == ["na", "nb"] and states(site) == [[], [], []]


def test_what_an_agent_says_against_its_part_is_told(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    for name in NAMES:
        site.jobs[name].refuse = JobFault("no torchrun in the command")
        site.jobs[name].refuse.status = 400
    code, _, err = run(capsys, "run", "--nodes", "2", "--", "x")
    assert code == 2 and "na, nb, nc: no torchrun in the command" in err


def test_following_shows_what_each_part_says_and_waits_for_all(site: Site, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    def end() -> None:
        site.until(lambda: all(any(job.state == "running" for job in site.jobs[name].kept.values()) for name in NAMES[:2]))
        for name, code in (("na", 0), ("nb", 5)):
            jobs = site.jobs[name]
            [id] = jobs.kept
            site.do(lambda jobs=jobs, id=id, code=code: (jobs.write(id, f"of {id}\n".encode()), jobs.end(id, exit_code=code)))

    thread = threading.Thread(target=end)
    thread.start()
    code = main(["run", "--nodes", "2", "-f", "--", "torchrun", "x"])
    thread.join()
    out, err = capfdbinary.readouterr()
    ids = [id for name in NAMES[:2] for id in site.jobs[name].kept]
    assert code == 5 and sorted(out.decode().splitlines()) == sorted(f"of {id}" for id in ids) and err.count(b" ended (") == 2


def test_no_line_of_another_part_comes_into_the_middle_of_one() -> None:
    out: list[str] = []
    with Lines(out.append, whole=True) as one, Lines(out.append, whole=True) as other:
        one.write("step 1, lo")
        other.write("a\nb")
        one.write("ss 2\r50%")
        assert out == ["a\n", "step 1, loss 2\r"]
    assert "".join(out) == "a\nstep 1, loss 2\rb50%"
    with Lines(out.append, whole=False) as alone:
        alone.write("50")
        assert out[-1] == "50", "a single log is not held back"


def place(name: str, url: str) -> Place:
    return Place(NodeConfig(name=name, url=url), None)


def wanted(**fields: Any) -> Wanted:
    return Wanted(spec=wire.JobSpec(command=("torchrun", "x")), nodes=2, **fields)


def test_the_rendezvous_is_where_the_others_can_reach_it() -> None:
    here, there, six = (
        place("a", "http://127.0.0.1:1"),
        place("b", "https://10.0.0.6:9477"),
        place("c", "https://[fd00::1]:9477"),
    )
    assert gang.endpoint_of(wanted(), [there, here]).startswith("10.0.0.6:")
    assert gang.endpoint_of(wanted(), [six, there]).startswith("[fd00::1]:")
    with pytest.raises(WrongUsage, match="the address of a is 127.0.0.1, which only it can reach; name one .* --rendezvous"):
        gang.endpoint_of(wanted(), [here, there])
    assert gang.endpoint_of(wanted(rendezvous="10.0.0.9:29500"), [here, there]) == "10.0.0.9:29500"
    assert gang.endpoint_of(wanted(rendezvous="[fd00::2]"), [here, there]).startswith("[fd00::2]:")


def test_a_port_that_is_taken_here_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy = taken.getsockname()[1]
        monkeypatch.setattr("random.SystemRandom.sample", lambda self, ports, count: [busy, 20_123])
        assert gang.free_port("127.0.0.1") == 20_123
    assert len({gang.gang_id() for _ in range(50)}) == 50
