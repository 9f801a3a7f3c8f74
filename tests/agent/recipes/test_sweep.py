"""A sweep's parts that need no Ray: its plan, its money, a trial's process; and Ray itself missing."""

from __future__ import annotations

import fcntl
import importlib
import importlib.util
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from agent.recipes import sweep, sweep_cluster, sweep_plan, sweep_process, sweep_run
from agent.recipes.alone import alone
from agent.recipes.faults import CheckpointFault, WrongSettings
from agent.recipes.journal import Journal
from agent.recipes.sweep_money import Money, cost
from agent.recipes.sweep_plan import Plan, filled, planned
from agent.recipes.sweep_process import Running

SPACE: dict[str, dict[str, list[Any]]] = {
    "rate": {"loguniform": [0.001, 1.0]}, "width": {"choice": [8, 16]}, "warm": {"randint": [0, 2]}, "drop": {"uniform": [0.1, 0.2]},
}  # fmt: skip
RAW: dict[str, Any] = {
    "name": "toy", "metric": "loss", "mode": "min", "trials": 12, "at_once": 2, "cpus": 1.0, "gpus": 0, "nodes": 1,
    "search": "random", "scheduler": "asha", "grace": 2, "reduction": 2.0, "max_steps": 8, "budget": None,
    "reserve_seconds": 0.0, "seed": 3,
    "space": SPACE, "command": ("{python}", "toy.py", "{rate}"), "train": (),
}  # fmt: skip


def plan(**changes: Any) -> Plan:
    return Plan(**{**RAW, **changes})


def test_a_planned_trial_is_the_same_each_time_and_within_its_space() -> None:
    drawn = [planned(plan(), number) for number in range(1, 13)]
    assert drawn == [planned(plan(), number) for number in range(1, 13)] and planned(plan(), 13) is None
    assert drawn != [planned(plan(seed=4), number) for number in range(1, 13)]
    for one in drawn:
        assert one and 0.001 <= one["rate"] <= 1 and one["width"] in (8, 16) and one["warm"] in (0, 1, 2) and 0.1 <= one["drop"] <= 0.2
        assert filled(["--rate={rate}", "{other}"], one) == [f"--rate={one['rate']:.6g}", "{other}"]
    grid = plan(search="grid", space={"a": {"grid": [1, 2]}, "b": {"grid": [True, "{a}"]}}, trials=9)
    assert [planned(grid, number) for number in (1, 2, 4, 5)] == [{"a": 1, "b": True}, {"a": 1, "b": "{a}"}, {"a": 2, "b": "{a}"}, None]
    assert filled(["{a}{b}"], {"a": 1, "b": "{a}"}) == ["1{a}"], "a value is not looked through"


def test_money_is_counted_over_stops_and_no_trial_starts_that_would_go_beyond(tmp_path: Path) -> None:
    now, rate = [0.0], Decimal(36)  # a cent a second
    clock: Callable[[], float] = lambda: now[0]
    money = Money(Decimal("0.50"), lambda: rate, tmp_path, clock)
    assert money.may_start() and money.expected() is None
    money.runs(1, 10.0, cost("36", 10.0))
    now[0] = 10
    assert money.over(1, ended=True) == (10.0, Decimal("0.1")) and money.expected() == 10.0
    assert money.may_start()
    money.runs(2, 4.0, Decimal("0.04"))
    money.over(2, ended=False)
    now[0] = 20
    money.keep()
    again = Money(Decimal("0.50"), lambda: rate, tmp_path, clock)
    assert (again.spent(), again.seconds, again.expected()) == (Decimal("0.2"), 20.0, 10.0)
    again.runs(2, 1.0, Decimal("0.01"))
    assert again.paid(2) == (5.0, Decimal("0.05")) and again.earlier(2) is None
    other = Money(Decimal("0.50"), lambda: rate, tmp_path, clock, job="j2")
    other.runs(2, 1.0, Decimal("0.01"))
    other.keep()
    assert (other.paid(2).usd, other.earlier(2), other.earlier(3)) == (Decimal("0.05"), Decimal("0.04"), None)
    assert Money(None, lambda: rate, tmp_path, clock, job="j2").earlier(2) == Decimal("0.04")
    now[0] = 40  # 40 cents: until another trial ends, 10 more
    assert again.may_start() and Money(Decimal("0.50"), lambda: rate, tmp_path, clock, job="j2").may_start()
    assert not Money(Decimal("0.50"), lambda: rate, tmp_path, clock, reserve_seconds=25.1).may_start()
    now[0] = 40.1
    assert not again.may_start(), "its part of the node is less, but the node is paid"
    assert Money(None, lambda: rate, tmp_path, clock).may_start()
    unpriced = Money(Decimal(1), lambda: None, tmp_path / "..", clock)
    assert unpriced.spent() is None and unpriced.may_start() and cost(None, 5) is None


def toy(tmp_path: Path, script: str, number: int = 1) -> Running:
    (tmp_path / "toy.py").write_text("import json, os, signal, sys, time\n" + script)
    return Running(plan(), number, {"rate": 0.5}, work=tmp_path, checkpoints=tmp_path / "checkpoints")


def lives(pid: int) -> bool:
    """No zombie: an orphan is one until init takes it."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes() != b""
    except OSError:
        return False


def test_a_trial_reports_what_is_new_and_says_how_its_process_ended(tmp_path: Path) -> None:
    running = toy(tmp_path, 'print("hello", flush=True)\nprint(json.dumps({"loss": float(sys.argv[1]), "step": 7}), flush=True)')
    told = running.next()
    assert (told["metric"], told["step"]) == (0.5, 7)
    while "ended" not in told:
        told = running.next()
    assert (told["metric"], told["step"]) == (0.5, 7) and told["run_seconds"] > 0
    running.end()
    failing = toy(tmp_path, 'sys.exit("rackrate: no data")', 2)
    assert failing.next()["failed"] == "exit 1: rackrate: no data"
    failing.end()
    silent = toy(tmp_path, 'print(json.dumps({"loss": float("nan")}))\nprint(json.dumps({"loss": True}))', 3)
    assert silent.next()["failed"] == "none of its lines had a number `loss`"
    silent.end()
    resumed = toy(tmp_path, "pass", 1)  # the training had ended before: its checkpoint is the last one
    assert (resumed.next()["metric"], resumed.folder.name) == (0.5, "0001")
    resumed.end()


def test_a_trial_that_is_ended_may_save_and_nothing_of_its_group_is_left(tmp_path: Path) -> None:
    script = """
def save(*_):
    open("saved", "w").close()
    sys.exit(0)
child = os.fork()
if child:
    signal.signal(signal.SIGTERM, save)
    print(json.dumps({"loss": 1.0, "step": child}), flush=True)
else:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(60)
"""
    running = toy(tmp_path, script)
    child = running.next()["step"]
    assert lives(child)
    running.end()
    assert (tmp_path / "saved").exists() and not lives(child)


def test_what_the_job_was_given_is_what_ray_deals_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sweep_cluster.own_gpus({"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"}) == 2
    assert sweep_cluster.own_gpus({}) == sweep_cluster.own_gpus({"CUDA_VISIBLE_DEVICES": ""}) == 0
    told = {"RACKRATE_GANG_ENDPOINT": "[::1]:29500", "RACKRATE_GANG_NODES": "2", "RACKRATE_GANG_HOST": "0"}
    assert sweep_cluster.gang(told) == (2, "::1", 29500, False) and sweep_cluster.gang({}) is None
    nodes: list[dict[str, object]] = [{"Alive": True, "Labels": {"usd_per_hour": "1.5"}}, {"Alive": False, "Labels": {}}]
    assert sweep_cluster.rates(nodes) == Decimal("1.5")
    assert sweep_cluster.rates([*nodes, {"Alive": True, "Labels": {}}]) is None
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    token = sweep_cluster._token(tmp_path)
    assert token.stat().st_mode & 0o777 == 0o600 and len(token.read_text()) == 64
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "ray-token").write_text("given")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "secrets"))
    assert sweep_cluster._token(tmp_path).read_text() == "given"


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """sweep_lines.py as if there were a Ray: the import of one takes two seconds."""
    monkeypatch.setitem(sys.modules, "ray.tune", SimpleNamespace(Callback=object))
    monkeypatch.delitem(sys.modules, "agent.recipes.sweep_lines", raising=False)
    made = importlib.import_module("agent.recipes.sweep_lines")
    monkeypatch.delitem(sys.modules, "agent.recipes.sweep_lines")
    return made


def test_a_trial_that_was_killed_is_run_again_and_one_that_failed_is_not(
    tmp_path: Path, lines: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    teller = lines.Teller(plan(), Money(None, lambda: None, tmp_path), Journal(speaks=True), {})
    trial = SimpleNamespace(trial_id="a", config={"number": 1, "values": {}}, last_result={}, max_failures=1)

    def ends(fault: str, *, killed: bool) -> None:
        teller.on_trial_start(1, [], trial)
        teller.on_trial_result(1, [], trial, {"failed": fault, "killed": killed, "run_seconds": 1.0})

    ends("signal 9", killed=True)
    teller.on_trial_recover(1, [], trial)
    assert trial.max_failures == 1
    teller.on_trial_start(1, [], trial)
    teller.on_trial_recover(1, [], trial)
    ends("exit 1: no data", killed=False)
    teller.on_trial_error(1, [], trial)
    assert trial.max_failures == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["state"], one.get("why")) for one in told if one["state"] != "started"] == [
        ("lost", "it was killed (signal 9); it is run again, once"),
        ("lost", "its node was lost; it is run again, once"),
        ("failed", "exit 1: no data"),
    ]


def test_a_soft_stop_is_kept_until_somebody_can_act_on_it(lines: ModuleType) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    ended: list[int] = []
    try:
        signal.signal(signal.SIGUSR1, lambda number, frame: ended.append(number))  # as Ray Tune does, once it can end
        stop = sweep_run.Stop()
        teller = lines.Teller(plan(), None, None, stop.asked)
        with stop.kept():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # as `ray.init` does, with its own
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
            teller.on_step_begin(1, [])
            assert not stop.asked and not ended
        assert stop.asked
        teller.on_step_begin(2, [])
        assert ended == [signal.SIGUSR1]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_what_a_killed_sweep_left_of_ray_is_taken_away_and_nothing_else(tmp_path: Path) -> None:
    for name in ("rr-left", "rr-runs", "other"):
        (tmp_path / name / "session").mkdir(parents=True)
        (tmp_path / name / "lock").touch()
    (tmp_path / "rr-new").mkdir()  # its lock is not there yet
    (tmp_path / "rr-link").symlink_to(tmp_path / "other")
    with (tmp_path / "rr-runs" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sweep_cluster._tidy(tmp_path)
    assert {one.name for one in tmp_path.iterdir()} == {"rr-runs", "rr-new", "rr-link", "other"}


def test_without_ray_or_with_a_plan_that_is_none_there_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / sweep_plan.FILE
    assert sweep.main([str(path)]) == 2 and "no such file" in capsys.readouterr().err
    path.write_text('{"name": "x"}')
    with pytest.raises(WrongSettings, match="is no sweep"):
        sweep_plan.read(path)
    path.write_text(json.dumps(RAW))
    assert sweep_plan.read(path) == plan()
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ray" else found(name))
    assert sweep.main([str(path)]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "has no Ray Tune (ray is missing)" in said and sys.executable in said


def test_a_run_whose_actor_was_lost_is_ended_before_the_trial_runs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_process, "SAVE_SECONDS", 0.2)
    script = 'signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint(json.dumps({"loss": 1.0}), flush=True)\ntime.sleep(60)'
    stubborn = toy(tmp_path, script)
    stubborn.next()
    again = toy(tmp_path, script)
    told = stubborn.next()
    assert (told["failed"], told["killed"]) == ("signal 9", True), "killed by another: it may run again"
    assert again.next()["metric"] == 1.0
    stubborn.end()
    assert again._over(0) is False, "what is left of a run is ended by its own actor, the trial's next run is not"
    again.end()


def test_nothing_is_signalled_that_was_waited_for_and_a_rank_in_a_session_of_its_own_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """
child = os.fork()
if not child:
    os.setsid()  # as torchrun starts a rank
    os.close(1)
    time.sleep(60)
print(json.dumps({"loss": 1.0, "step": child}), flush=True)
os._exit(0)
"""
    running = toy(tmp_path, script)
    rank = running.next()["step"]
    while "ended" not in running.next():
        pass
    groups: list[int] = []
    taken: list[int] = []
    killpg, wait = os.killpg, running._process.wait
    monkeypatch.setattr(os, "killpg", lambda group, number: (groups.append(len(taken)), killpg(group, number)))
    monkeypatch.setattr(running._process, "wait", lambda: taken.append(wait()))
    running.end()
    assert (groups, taken) == ([0], [0]), "its group is signalled before it is waited for"
    running.end()  # as an actor that was kept for another trial does, long after
    assert (groups, taken) == ([0], [0])
    assert not lives(rank)


def test_an_actor_that_gets_no_step_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tune sets up an actor whose trial it has given to another one meanwhile: this one must not end that one's run."""
    tune = SimpleNamespace(Trainable=object)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(tune=tune))
    monkeypatch.delitem(sys.modules, "agent.recipes.sweep_trial", raising=False)
    made = importlib.import_module("agent.recipes.sweep_trial")
    monkeypatch.delitem(sys.modules, "agent.recipes.sweep_trial")
    (tmp_path / "toy.py").write_text('print(\'{"loss": 1.0}\', flush=True)\nimport time\ntime.sleep(60)')
    (tmp_path / sweep_plan.FILE).write_text(json.dumps(RAW))
    for name, value in ((made.WORK, tmp_path), (made.CHECKPOINTS, tmp_path / "checkpoints")):
        monkeypatch.setenv(name, str(value))
    used, late = made.Trial(), made.Trial()
    config = {"number": 1, "values": {"rate": 0.5}}
    used.setup(config)
    assert used.step()["metric"] == 1.0
    late.setup(config)
    late.cleanup()
    assert not used._run._over(0)
    used.reset_config({"number": 2, "values": {"rate": 0.5}})
    assert used._run is None and sorted(one.name for one in (tmp_path / "checkpoints" / "trials").iterdir()) == ["0001"]


def test_a_lock_of_another_machine_says_what_to_do_where_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with alone(tmp_path):
        monkeypatch.setattr("agent.recipes.alone.socket.gethostname", lambda: "another")
        with pytest.raises(CheckpointFault) as told, alone(tmp_path):
            pass
        assert str(told.value).endswith(
            f"; where that machine is gone and its lock has outlived it, as on NFS, remove {tmp_path}/running.lock."
        )
        (tmp_path / "running.lock").unlink()
        with alone(tmp_path):
            pass


def test_two_runs_in_one_folder_are_one_too_many(tmp_path: Path) -> None:
    with alone(tmp_path):
        here = rf"{tmp_path} is in use by another run \(process {os.getpid()} on .+\); wait until that has ended, or name another folder\.$"
        with pytest.raises(CheckpointFault, match=here):
            with alone(tmp_path):
                pass
    with alone(tmp_path):
        pass
    with pytest.raises(CheckpointFault, match="checkpoints cannot be kept there"), alone(tmp_path / "none"):
        pass
