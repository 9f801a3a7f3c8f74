"""What is asked for is checked before anything is kept: one sentence for each fault."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.config import JobsTable, NodeConfig
from agent.errors import JobConflict, JobForbidden, JobRefused, JobUnknown
from agent.isolation.host import detect
from agent.jobs import submit
from agent.jobs.actor import Actor
from agent.jobs.submit import NodeFacts
from agent.wire import Gang, JobSpec
from tests.support.job_node import HAS_CGROUPS, NODE, PARENT, JobNode, inventory, job_node, sh

FACTS = NodeFacts(gpus=inventory(2), cpu_count=16, memory_bytes=64 << 30, usd_per_hour="3.10", queued=0)
KNOWN = "0123456789ab"
HASH = "0" * 64


def no_upload(upload: str) -> Path:
    raise JobUnknown(f"there is no upload {upload!r} here; send it again")


def faults(facts: NodeFacts = FACTS, jobs: JobsTable = JobsTable(), **fields: Any) -> str:
    """The sentence of the refusal; empty: it passes."""
    spec = submit.with_defaults(JobSpec(**{"command": ("true",), **fields}), jobs)
    try:
        submit.check(spec, facts, jobs, known=lambda id: id == KNOWN, upload=no_upload)
    except JobRefused as fault:
        return str(fault)
    return ""


GOOD: list[dict[str, Any]] = [
    {},
    {"gpus": 2, "budget_usd": Decimal("40"), "idle_stop_seconds": 60.0},
    {"gpu_share": Decimal("0.5"), "gpu_memory_bytes": 8 << 30},
    {"cpus": Decimal("1.5"), "cpu_quota": True, "memory_bytes": 64 << 30, "pids": 10, "io_weight": 10_000},
    {"after": (KNOWN, f"any:{KNOWN}"), "array": (3, 1, 3), "array_at_once": 2},
    {"env": {"A": "x\ny", "RACKRATE_CHECKPOINT_DIR": "/data"}, "secrets": {"aws.key": "v"}, "stop_signal": "sigusr1"},
    {"command": ("echo $HOME",), "shell": True, "workdir": "/"},
]


@pytest.mark.parametrize("fields", GOOD, ids=range(len(GOOD)))
def test_what_the_node_can_do_passes(fields: dict[str, Any]) -> None:
    assert faults(**fields) == ""


BAD: list[tuple[dict[str, Any], str]] = [
    ({"command": ()}, "there is no command to run"),
    ({"command": ("a", "b"), "shell": True}, "exactly one text, not 2"),
    ({"command": ("a\0b",)}, "NUL character"),
    ({"command": ("x" * 200_000,)}, "longer than 131072 bytes"),
    ({"gpus": 3}, "3 GPUs are asked for, but this node has 2"),
    ({"gpus": -1}, "-1 GPUs cannot be given"),
    ({"gpus": 1, "gpu_share": Decimal("0.5")}, "cannot be asked for together"),
    ({"gpu_share": Decimal("1.5")}, "must lie between 0 and 1"),
    ({"gpu_share": Decimal(0)}, "must lie between 0 and 1"),
    ({"gpu_share": Decimal("NaN")}, "must lie between 0 and 1"),
    ({"gpu_share": Decimal("0.1234567")}, "finer than a millionth"),
    ({"gpu_share": Decimal("0.5"), "gpu_memory_bytes": 81 << 30}, "the largest GPU here has 80.0 GiB"),
    ({"gpus": 1, "gpu_memory_bytes": 1 << 30}, "goes with a share"),
    ({"idle_stop_seconds": 60.0}, "looks at GPUs, and the job asks for none"),
    ({"memory_bytes": 65 << 30}, "65.0 GiB of memory are asked for, but this node has 64.0 GiB"),
    ({"memory_bytes": 1000}, "too few for any program"),
    ({"cpus": Decimal(17)}, "17 CPUs are asked for, but this node has 16"),
    ({"cpus": Decimal(0)}, "0 CPUs cannot be given"),
    ({"cpu_quota": True}, "needs a number of CPUs"),
    ({"pids": 0}, "limit of 0 processes"),
    ({"io_weight": 10_001}, "io weight of 10001"),
    ({"time_limit_seconds": 0.0}, "time limit of 0 s"),
    ({"time_limit_seconds": float("nan")}, "time limit of nan s"),
    ({"grace_seconds": -1.0}, "grace of -1 s"),
    ({"priority": 1001}, "priority of 1001"),
    ({"retries": -1}, "not -1"),
    ({"retry_on": ("bad luck",)}, "'bad luck'"),
    ({"deadline": datetime(2030, 1, 1)}, "no time zone"),
    ({"budget_usd": Decimal(1)}, "a budget needs GPUs"),
    ({"budget_usd": Decimal(-1), "gpus": 1}, "budget of -1 USD"),
    ({"node_usd_per_hour": Decimal(0)}, "price of 0 USD"),
    ({"after": ("ffffffffffff",)}, "no job ffffffffffff"),
    ({"after": ("../../etc/passwd",)}, "../../etc/passwd"),
    ({"array": (1_000_000,)}, "1000000 cannot be one"),
    ({"array_at_once": 2}, "array"),
    ({"env": {"A=B": "x"}}, "no name of an environment variable"),
    ({"env": {"CUDA_VISIBLE_DEVICES": "7"}}, "set by the node itself"),
    ({"env": {"RACKRATE_JOB": "x"}}, "set by the node itself"),
    ({"env": {"A": "\0"}}, "NUL"),
    ({"secrets": {"../x": "value"}}, "'../x' is no name of a secret"),
    ({"name": "a\x1b[2Jb"}, "control characters"),
    ({"project": ""}, "0 characters"),
    ({"workdir": "/nonexistent/folder"}, "no work directory '/nonexistent/folder'"),
    ({"workdir": "relative"}, "no absolute path"),
    ({"upload": f"sha256:{HASH}"}, "there is no upload"),
    ({"upload": f"sha256:{HASH}", "workdir": "../../etc"}, "must lie inside it"),
    ({"stop_signal": "BYE"}, "'BYE' is no signal"),
    ({"log_quota_bytes": 10}, "too small"),
    ({"gang": Gang(id="a/b", nodes=2, least_nodes=2)}, "no id of a run"),
    ({"gang": Gang(id="a", nodes=2, least_nodes=3)}, "at least 3 of 2 nodes"),
    ({"gang": Gang(id="a", nodes=2, least_nodes=1, join_timeout_seconds=5)}, "at least 20 s"),
    ({"gang": Gang(id="a", nodes=2, least_nodes=2), "command": ("x",), "shell": True}, "not a shell text"),
    ({"gang": Gang(id="a", nodes=2, least_nodes=2), "command": ("torchrun", "--nnodes=3", "x.py")}, "--nnodes is set by"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "sentence"), BAD, ids=[sentence for _, sentence in BAD])
def test_each_fault_is_one_sentence(fields: dict[str, Any], sentence: str) -> None:
    found = faults(**fields)
    assert sentence in found and "\n" not in found
    assert "value" not in found.replace("a value", "")


def test_all_faults_are_said_at_once() -> None:
    found = faults(gpus=9, memory_bytes=1 << 50, name="")
    assert "9 GPUs" in found and "1048576.0 GiB" in found and "the name has 0" in found


def test_a_budget_needs_a_price_and_takes_the_senders() -> None:
    unpriced = NodeFacts(gpus=inventory(1), cpu_count=1, memory_bytes=None, usd_per_hour=None, queued=0)
    assert "needs the node's price" in faults(unpriced, gpus=1, budget_usd=Decimal(1))
    assert faults(unpriced, gpus=1, budget_usd=Decimal(1), node_usd_per_hour=Decimal(2)) == ""


def test_a_full_queue_takes_no_more() -> None:
    full = NodeFacts(gpus=(), cpu_count=1, memory_bytes=None, usd_per_hour=None, queued=9)
    assert faults(full, JobsTable(max_queue=10)) == ""
    assert "queue of this node is full" in faults(full, JobsTable(max_queue=10), array=(1, 2))


def test_what_the_job_does_not_say_the_node_fills_in() -> None:
    spec = submit.with_defaults(JobSpec(command=("true",), array=(3, 1, 3)), JobsTable(grace_seconds=7, default_pids=99))
    assert (spec.grace_seconds, spec.pids, spec.array) == (7, 99, (1, 3))
    assert submit.with_defaults(JobSpec(command=("true",), grace_seconds=3.0, pids=5), JobsTable()).grace_seconds == 3.0


def test_warnings_say_what_may_go_wrong() -> None:
    now = datetime.now(UTC)
    cut = submit.warnings(JobSpec(command=("torchrun", "--shutdown-timeout", "40", "t.py"), grace_seconds=20.0), now)
    assert cut == ["the grace of 20 s is not longer than the shutdown time-out of torchrun, 40 s: a checkpoint may be cut; "
                   "use a longer --grace or a shorter --shutdown-timeout"]  # fmt: skip
    assert submit.warnings(JobSpec(command=("torchrun", "t.py"), grace_seconds=20.0), now) == [], "ours is made to fit"
    late = JobSpec(command=("x",), deadline=now + timedelta(hours=1), time_limit_seconds=7200.0)
    assert "before its time limit" in submit.warnings(late, now)[0]


def test_a_grace_in_which_the_trials_of_a_sweep_may_not_save_is_warned_of() -> None:
    now, command = datetime.now(UTC), ("python3", "-m", "agent.recipes.sweep", "sweep.json")
    [said] = submit.warnings(JobSpec(command=command, grace_seconds=10.0), now)
    assert said == (
        "the grace of 10 s may be too short for the trials of a sweep to save: they and Ray take up to 25 s; use a longer --grace"
    )
    assert submit.warnings(JobSpec(command=command, grace_seconds=25.0), now) == []
    assert submit.warnings(JobSpec(command=("python3", "train.py"), grace_seconds=10.0), now) == []


async def test_a_refused_job_leaves_nothing_and_a_user_names_only_themselves() -> None:
    async with job_node(1) as node:
        kept = sorted(path.name for path in (node.folder / "state/jobs").iterdir())
        for fields in ({"gpus": 2}, {"memory_bytes": 1 << 50}, {"user": "no-such-user"}, {"after": ("ffffffffffff",)}):
            with pytest.raises(JobRefused):
                node.submit(("true",), **fields)
        ann = Actor("ann's", user="daemon")
        with pytest.raises(JobForbidden, match="may not name 'root'"):
            node.submit(("true",), ann, user="root")
        assert sorted(path.name for path in (node.folder / "state/jobs").iterdir()) == kept
        mine = node.submit(("sleep", "600"))
        for act in (lambda: node.jobs.cancel(mine, ann), lambda: node.jobs.signal(mine, "USR1", ann)):
            with pytest.raises(JobForbidden, match="belongs to"):
                act()
        for id in ("../../etc/passwd", "x", "ffffffffffff", "0123456789ab_"):
            with pytest.raises(JobUnknown):
                node.jobs.job(id)


async def test_gpus_that_were_not_read_yet_and_jobs_switched_off_are_told_apart() -> None:
    async with job_node() as node:
        with pytest.raises(JobConflict, match="not been read yet"):
            node.submit(("true",), gpus=1)
        node.close()
        off = JobNode(enabled=False)
        off.open()
        try:
            with pytest.raises(JobConflict, match="switched off"):
                off.submit(("true",))
        finally:
            await off.clear()


async def test_strict_refuses_what_this_host_cannot_hold_and_else_it_is_said() -> None:
    async with job_node() as node:
        with pytest.raises(JobRefused, match="memory.*not enforced|not enforced.*memory"):
            node.submit(("true",), memory_bytes=1 << 28, strict=True)
        job = await node.run(("true",), memory_bytes=1 << 28)
        assert any("memory" in sentence for sentence in job.not_enforced) and job.enforcement == "none"


@pytest.mark.skipif(not HAS_CGROUPS, reason="no cgroups can be made here")
async def test_a_dry_run_lists_exactly_what_the_start_does_and_does_nothing() -> None:
    async with job_node(1, cgroups=True, node=NodeConfig(usd_per_hour="2")) as node:
        before = set(Path("/sys/fs/cgroup").glob(f"*/{PARENT}/*"))
        fields: dict[str, Any] = {"gpus": 1, "memory_bytes": 256 << 20, "cpus": Decimal(1), "pids": 50, "env": {"A": "1"}}
        plan = node.jobs.plan(JobSpec(command=sh("true"), **fields), NODE)
        assert set(Path("/sys/fs/cgroup").glob(f"*/{PARENT}/*")) == before
        job = await node.run(sh("true"), **fields)
        shim = msgspec.json.decode((node.folder / "state/jobs" / job.id / "1/shim.json").read_bytes())
        done = [tuple(step) for step in shim["steps"]]
        unit = next(word for step in plan.steps for word in step.target.split("/") if word.startswith("job-"))
        listed = [
            (step.kind, step.target.replace(unit, f"job-{job.id}-1"), step.text) for step in plan.steps if step.kind != "run"
        ]
        assert [step for step in listed if step[0] != "enter"] == [step for step in done if step[0] != "enter"]
        assert {step for step in done if step[0] == "enter"} <= {step for step in listed if step[0] == "enter"}
        assert plan.starts_now and plan.usd_per_hour == Decimal(2) and plan.argv == sh("true")
        assert "A" in plan.environment and plan.gpus == (node.gpus[0].uuid,) and plan.user == job.user
        assert detect(parent=PARENT, systemd=False).enforcement == plan.enforcement
