"""Real trainings (torch, gloo, on CPUs) as jobs of real agents: stopped, killed, failed, spread over two nodes, reclaimed.

The trainings wait for a file where a test needs them at a certain step, so nothing here depends on how fast the machine is.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, Self

import httpx
import pytest

from agent import wire
from agent.client import AgentClient
from tests.support.imds import MetadataService, metadata_service
from tests.support.job_agent import JobAgent, wait_for
from tui import gang
from tui.config import NodeConfig
from tui.job_nodes import Place
from tui.jobspec import Wanted

pytest.importorskip("torch", reason="the extra `train` is not installed")

SCRIPT = str(Path(__file__).parents[1] / "support" / "ddp_train.py")
TORCHRUN = str(Path(sys.executable).with_name("torchrun"))
SLOW = 300.0
"""Seconds for what imports torch several times, on a machine that has much else to do."""


@pytest.fixture(scope="module")
def cloud() -> Iterator[MetadataService]:
    with metadata_service("ec2") as service:
        yield service


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory, cloud: MetadataService) -> Iterator[list[JobAgent]]:
    folder, environment = tmp_path_factory.mktemp("nodes"), {"RACKRATE_EC2_METADATA_URL": cloud.url}
    made = [JobAgent(folder / name, name=name, node='cloud = "aws"', environment=environment) for name in ("one", "two")]
    yield made
    for machine in made:
        machine.close()


def up(machines: list[JobAgent]) -> list[JobAgent]:
    for machine in machines:
        if machine.process is None:
            machine.start()
    return machines


@pytest.fixture
def nodes(machines: list[JobAgent]) -> list[JobAgent]:
    """Both up, whatever the test before did to them."""
    return up(machines)


@pytest.fixture
def node(nodes: list[JobAgent]) -> JobAgent:
    return nodes[0]


class Run:
    """The folder of one training, and what is in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def command(self, steps: int, *options: str) -> tuple[str, ...]:
        return (SCRIPT, str(self.folder), str(steps), *options)

    def lines(self, name: str) -> list[list[int]]:
        path = self.folder / name
        return [[int(word) for word in line.split()] for line in path.read_text().splitlines()] if path.exists() else []

    def column(self, name: str) -> list[int]:
        return [line[0] for line in self.lines(name)]

    def reaches(self, step: int, tell: Any) -> None:
        wait_for(lambda: step in self.column("steps"), SLOW, tell)

    def go(self) -> None:
        """Lets a training go on that waits."""
        (self.folder / "go").touch()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def told(*jobs: tuple[JobAgent, str]) -> Any:
    """What is said where a wait was in vain."""
    return lambda: "\n".join(f"{agent.job(id)}\n{agent.text(id)[-3000:]}" for agent, id in jobs)


def ended(agent: JobAgent, id: str, seconds: float = SLOW) -> dict[str, Any]:
    job = wait_for(lambda: one if (one := agent.job(id))["state"] == "ended" else None, seconds, told((agent, id)))
    return dict(job)


def nothing_is_left(agent: JobAgent, id: str) -> None:
    """No process, cgroup or shim of the job: at once, for its end was told."""
    assert agent.marked(f"RACKRATE_JOB={id}") == []
    assert [group for group in agent.groups() if id in group.name] == []
    wait_for(lambda: not agent.shims(id), 60)
    assert agent.job(id).get("left_behind", []) == []


def together(nodes: list[JobAgent], run: Run, *arguments: str, on_node_loss: str) -> list[str]:
    """Ids of the two parts, which the client's own coordinator has started."""
    spec = wire.JobSpec(command=(sys.executable, *arguments), grace_seconds=10)
    wanted = Wanted(spec=spec, nodes=2, processes_per_node=1, on_node_loss=on_node_loss)
    places = [Place(NodeConfig(name=str(number), url=one.url), None) for number, one in enumerate(nodes)]

    def client(config: NodeConfig) -> AgentClient:
        token = (nodes[int(config.name)].state / "token").read_text().strip()
        return AgentClient(config.url, token, timeout_seconds=60)

    parts = asyncio.run(gang.run(places, wanted, client, reserve_seconds=60))
    return [part.job.id for part in parts]


class Bereaved(NamedTuple):
    """A training over two nodes of which the second has died."""

    run: Run
    ids: list[str]


@pytest.fixture(scope="module")
def bereaved(machines: list[JobAgent], tmp_path_factory: pytest.TempPathFactory) -> Bereaved:
    """Made early: it takes torch elastic half a minute to give the dead node up, and other tests need not wait for that."""
    run = Run(tmp_path_factory.mktemp("bereaved"))
    up(machines)
    command = run.command(10, "--every", "3", "--hold", "7", "--least-world", "2")
    ids = together(machines, run, *command, on_node_loss="continue")
    run.reaches(7, told(*zip(machines, ids, strict=True)))
    machines[1].lose_power()
    run.go()
    return Bereaved(run, ids)


def test_a_node_that_died_and_came_back_knows_that_its_part_is_lost(bereaved: Bereaved, nodes: list[JobAgent]) -> None:
    job = ended(nodes[1], bereaved.ids[1])
    assert job["cause"] == "lost", job
    nothing_is_left(nodes[1], bereaved.ids[1])


def test_a_cancelled_training_saves_once_more_and_each_worker_is_told_once(node: JobAgent, run: Run) -> None:
    id = node.submit(TORCHRUN, "--nproc-per-node", "2", *run.command(1_000_000, "--plain"))
    run.reaches(3, told((node, id)))
    assert len(node.marked(f"RACKRATE_JOB={id}")) >= 3
    assert node.http.delete(f"/v1/jobs/{id}").json()["state"] == "stopping"
    job = ended(node, id)
    assert job["cause"] == "cancelled", job
    assert sorted(run.column("handled")) == [0, 1]
    steps = run.column("steps")
    assert steps == list(range(1, len(steps) + 1))
    assert run.column("saved")[-1] == steps[-1]
    nothing_is_left(node, id)


def test_workers_that_ignore_the_signal_and_fork_away_are_gone_after_a_forced_cancel(node: JobAgent, run: Run) -> None:
    id = node.submit(TORCHRUN, "--nproc-per-node", "2", *run.command(1_000_000, "--plain", "--stubborn"))
    run.reaches(3, told((node, id)))
    before = set(node.marked(f"RACKRATE_JOB={id}"))
    wait_for(lambda: set(node.marked(f"RACKRATE_JOB={id}")) - before, 60)  # they do fork away
    node.http.delete(f"/v1/jobs/{id}?force=true")
    job = ended(node, id, 60)
    assert job["cause"] == "cancelled", job
    assert not run.lines("handled")
    nothing_is_left(node, id)


# Two nodes


def test_a_training_over_two_nodes_runs_to_its_end(nodes: list[JobAgent], run: Run) -> None:
    ids = together(nodes, run, *run.command(7, "--plain"), on_node_loss="stop")
    jobs = [ended(agent, id) for agent, id in zip(nodes, ids, strict=True)]
    assert [(job["cause"], job["exit_code"], job["attempt"]) for job in jobs] == [("exit:0", 0, 1)] * 2
    assert jobs[0]["gang"] == jobs[1]["gang"]
    assert run.lines("steps") == [[step, 2] for step in range(1, 8)]
    assert run.column("saved") == [5, 7]


def test_a_training_goes_on_from_its_checkpoint_when_a_node_dies(nodes: list[JobAgent], bereaved: Bereaved) -> None:
    job, run = ended(nodes[0], bereaved.ids[0]), bereaved.run
    assert job["cause"] == "exit:0", (job, nodes[0].text(bereaved.ids[0]))
    assert run.lines("steps") == [*([step, 2] for step in range(1, 8)), *([step, 1] for step in range(7, 11))]
    assert run.column("resumed") == [0, 6], "step 7 alone, which no checkpoint had, is trained twice"
    assert run.column("saved") == [3, 6, 9, 10]
    nothing_is_left(nodes[0], bereaved.ids[0])


def reserved(nodes: list[JobAgent], run: Run, join_timeout_seconds: float, *arguments: str) -> tuple[list[str], str]:
    """Ids of two parts that stop together, and where they are to meet."""
    ids = []
    for number, agent in enumerate(nodes):
        part = wire.Gang(
            id=run.folder.name[-40:], nodes=2, least_nodes=2, host_here=number == 0, join_timeout_seconds=join_timeout_seconds
        )
        spec = {"command": [sys.executable, *arguments], "gang": json.loads(wire.encoder.encode(part))}
        answer = agent.http.post("/v1/jobs?reserve=true", json=spec)
        assert answer.status_code == 200, answer.text
        ids.append(str(answer.json()["id"]))
    return ids, f"127.0.0.1:{gang.free_port('127.0.0.1')}"


def start(agent: JobAgent, id: str, endpoint: str) -> None:
    answer = agent.http.post(f"/v1/jobs/{id}/start", json={"endpoint": endpoint})
    assert answer.status_code == 200, answer.text


def test_where_all_are_to_stop_the_loss_of_a_node_ends_the_others(nodes: list[JobAgent], run: Run) -> None:
    ids, endpoint = reserved(nodes, run, 60, *run.command(1_000_000, "--plain", "--hold", "3"))
    for agent, id in zip(nodes, ids, strict=True):
        start(agent, id, endpoint)
    run.reaches(3, told(*zip(nodes, ids, strict=True)))
    nodes[1].lose_power()
    run.go()
    job = ended(nodes[0], ids[0])
    assert job["cause"] == "exit:1", job
    assert "onnection closed by peer" in job["evidence"] or "Connection reset by peer" in job["evidence"], job
    assert Counter(run.column("steps")).most_common(1)[0][1] == 1
    nothing_is_left(nodes[0], ids[0])


def test_what_torch_says_of_a_failure_is_in_the_evidence(
    nodes: list[JobAgent], run: Run, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Of an exception in a worker, and of a launcher whose others never come: it ends by itself."""
    (node, other), failing = nodes, Run(tmp_path_factory.mktemp("failing"))
    ids, endpoint = reserved(nodes, run, 4, *run.command(9, "--plain"))
    start(node, ids[0], endpoint)
    fails = node.submit(TORCHRUN, "--nproc-per-node", "1", *failing.command(9, "--plain", "--fail-at", "2"))
    alone = ended(node, ids[0])
    assert alone["cause"] == "exit:1" and "Rendezvous" in alone["evidence"], alone
    assert not run.lines("resumed")
    assert other.http.delete(f"/v1/jobs/{ids[1]}").json()["state"] == "ended"
    failed = ended(node, fails)
    assert failed["cause"] == "exit:1"
    assert "ValueError: the loss is not finite after step 2" in failed["evidence"], failed
    for id in (ids[0], fails):
        nothing_is_left(node, id)


# A notice of the cloud


class Listener:
    """All job and notice events of a node's stream, in their order."""

    def __init__(self, agent: JobAgent) -> None:
        self.events: list[dict[str, Any]] = []
        self._ended = threading.Event()
        self._opened = threading.Event()
        self._url, self._headers = f"{agent.url.rstrip('/')}/v1/stream", dict(agent.http.headers)
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._opened.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()  # samples come each second, so it is seen soon
        self._thread.join(30)

    def _listen(self) -> None:
        with httpx.stream("GET", self._url, headers=self._headers, timeout=60, trust_env=False) as answer:
            for line in answer.iter_lines():
                self._opened.set()
                event = json.loads(line)
                if event["event"] in ("job", "notice"):
                    self.events.append(event[event["event"]])
                if self._ended.is_set():
                    return

    def story(self) -> list[str]:
        """One word for what each event says, without repetitions."""
        words = [_word(event) for event in list(self.events)]
        return [word for number, word in enumerate(words) if number == 0 or words[number - 1] != word]


def _word(event: dict[str, Any]) -> str:
    if "state" not in event:
        return "withdrawn" if event.get("ended_at") else f"notice {event['kind']}"
    return f"{event['state']} {event.get('attempt', 0)} {event.get('cause', '-')}"


def test_a_reclaimed_training_saves_waits_and_goes_on_when_the_notice_is_withdrawn(
    node: JobAgent, run: Run, cloud: MetadataService
) -> None:
    with Listener(node) as listener:
        command = run.command(9, "--plain", "--every", "3", "--hold", "4")
        id = node.submit(TORCHRUN, "--nproc-per-node", "1", *command, interruptible=True, grace_seconds=60)
        run.reaches(4, told((node, id)))
        goes = datetime.now(UTC) + timedelta(seconds=120)
        cloud.values["spot/instance-action"] = json.dumps({"action": "terminate", "time": f"{goes:%Y-%m-%dT%H:%M:%SZ}"})
        wait_for(lambda: node.job(id)["state"] == "queued", SLOW, told((node, id)))
        reason = f"waits: aws takes this node away at {goes:%H:%M:%S} UTC"
        job = wait_for(lambda: one if (one := node.job(id)).get("reason") == reason else None, 30, told((node, id)))
        assert (job["state"], job["cause"]) == ("queued", "spot_reclaim"), job
        (attempt,) = job["attempts"]
        assert attempt["cause"] == "spot_reclaim" and "EC2 takes this spot node back" in attempt["evidence"]
        assert run.column("handled") == [0] and run.column("saved") == [3, 5]
        nothing_is_left(node, id)
        run.go()
        del cloud.values["spot/instance-action"]
        job = ended(node, id)
        wait_for(lambda: "ended 2 exit:0" in listener.story(), 30, lambda: str(listener.story()))
    assert (job["cause"], job["attempt"], job.get("retries", 0)) == ("exit:0", 2, 0), job
    assert [one["cause"] for one in job["attempts"]] == ["spot_reclaim", "exit:0"]
    assert run.column("steps") == list(range(1, 10)), "each step once: what the checkpoint holds is not trained again"
    assert run.column("resumed") == [0, 5] and run.column("saved") == [3, 5, 6, 9]
    wanted = [
        "running 1 -",
        "notice terminate",
        "queued 1 spot_reclaim",
        "withdrawn",
        "running 2 -",
        "ended 2 exit:0",
    ]
    story = iter(listener.story())
    assert all(word in story for word in wanted), "\n".join(listener.story())
