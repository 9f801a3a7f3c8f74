"""A drill with real jobs: one that saves when it is told to stop, and those that do not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from agent.config import AgentConfig
from agent.errors import AgentFault, ConfigurationError
from agent.interruption.drill import Drill, run
from agent.interruption.drill_options import chosen
from agent.interruption.drill_report import SAVED
from agent.jobs.context import cgroup_parent
from tests.support.cli import ROOT

TRAIN = """
import os, signal, sys, time
marker, on_stop, every = sys.argv[1], sys.argv[2], int(sys.argv[3])
stopping = []
if on_stop == "save":
    signal.signal(signal.SIGTERM, lambda number, frame: stopping.append(number))
elif on_stop == "ignore":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

def save(step):
    with open(marker + ".new", "w") as file:
        file.write(str(step))
    os.replace(marker + ".new", marker)

print("training", os.environ.get("FLAVOUR"), flush=True)
save(0)
step = 0
while not stopping:
    time.sleep(0.02)
    step += 1
    if every and step % every == 0:
        save(step)
save(step)
print("saved at step", step, flush=True)
"""


def drill(folder: Path, on_stop: str, every: int = 0, **fields: object) -> Drill:
    script, marker = folder / "train.py", folder / "last.pt"
    script.write_text(TRAIN)
    given: dict[str, object] = {
        "command": (sys.executable, "-I", "-S", str(script), str(marker), on_stop, str(every)), "lead_seconds": 20.0,
        "marker": marker, "wait_for_marker": True, "grace_seconds": 1.0, "pace": 0.02,
    }  # fmt: skip
    return Drill(**(given | fields))  # type: ignore[arg-type]


def left(state_dir: Path) -> list[Path]:
    """Cgroups and run-time folders of the agent that had this state directory."""
    parent = cgroup_parent(AgentConfig(state_dir=state_dir))
    return [path for root in ("/sys/fs/cgroup", "/run") for path in (*Path(root).glob(parent), *Path(root).glob(f"*/{parent}"))]


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_a_job_that_saves_on_the_soft_signal_is_saved_in_time(tmp_path: Path, cloud: str) -> None:
    report = run(drill(tmp_path, "save", cloud=cloud, lead_seconds=None if cloud == "gcp" else 20.0, grace_seconds=10.0))
    assert (report.saved, report.verdict, report.cause) == (True, SAVED, "spot_reclaim")
    assert (report.exit_code, report.signal, report.killed) == (0, None, False)
    steps = [report.heard_seconds, report.signalled_seconds, report.saved_seconds, report.ended_seconds]
    assert None not in steps
    # the shim writes whole milliseconds, and a file's time is that of the kernel's last tick
    assert all(earlier < later + 0.02 for earlier, later in pairwise(steps))  # type: ignore[operator]
    assert report.left_seconds is not None and 0 < report.left_seconds < report.lead_seconds
    assert report.log_tail[-1].startswith("saved at step")


def test_a_job_that_ignores_the_soft_signal_is_killed_and_not_saved(tmp_path: Path) -> None:
    report = run(drill(tmp_path, "ignore", state_dir=tmp_path / "state"))
    assert left(tmp_path / "state") == []
    assert not report.saved and report.killed and report.signal == 9
    assert "before the notice" in report.verdict


def test_a_job_that_ignores_the_signal_but_saves_all_the_time_is_saved(tmp_path: Path) -> None:
    report = run(drill(tmp_path, "ignore", every=5, grace_seconds=3.0))
    assert report.saved and report.killed


def test_without_a_marker_an_end_by_the_signal_itself_is_not_saved(tmp_path: Path) -> None:
    for warm_up in (0.3, 3.0, 30.0):  # so long as a slow machine needs for its first word
        fields = {"marker": None, "wait_for_marker": False, "warm_up_seconds": warm_up, "environment": {"FLAVOUR": "salt"}}
        report = run(drill(tmp_path, "die", **fields))
        if report.log_tail:
            break
    assert not report.saved and "signal 15" in report.verdict and report.log_tail == ("training salt",)


def test_a_command_that_ends_before_the_notice_is_a_sentence_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(AgentFault, match="ended before the notice.*no data"):
        run(Drill(command=(sys.executable, "-I", "-S", "-c", "import sys; sys.exit('no data')"), pace=0.02))


def test_a_command_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(AgentFault, match="not-there"):
        run(Drill(command=(str(tmp_path / "not-there"),), pace=0.02))


def test_what_cannot_be_asked_for_is_refused(tmp_path: Path) -> None:
    for fields in ({"cloud": "gcp", "lead_seconds": 60.0}, {"lead_seconds": 0.0}, {"marker": None}):
        with pytest.raises(ConfigurationError):
            run(drill(tmp_path, "save", **fields))
    with pytest.raises(ConfigurationError, match="NOT_HERE"):
        chosen(["NOT_HERE"], {})
    assert chosen(["A=1=2", "B"], {"B": "3"}) == {"A": "1=2", "B": "3"}


def command(folder: Path, on_stop: str) -> list[str]:
    one = drill(folder, on_stop)
    options = ["--lead", "30s", "--grace", "5", "--marker", str(one.marker), "--wait-for-marker", "--json"]
    return [sys.executable, "-m", "agent.cli", "drill", *options, "--state-dir", str(folder / "state"), "--", *one.command]


def test_the_command_prints_the_report_as_json_and_ends_with_0(tmp_path: Path) -> None:
    done = subprocess.run(command(tmp_path, "save"), cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["verdict"] == SAVED and report["heard_seconds"] < report["saved_seconds"] + 0.02
    assert (tmp_path / "state/jobs").is_dir() and "the notice is given" in done.stderr


def test_a_drill_that_is_told_to_end_leaves_no_job_behind(tmp_path: Path) -> None:
    argv = command(tmp_path, "ignore")
    argv[argv.index("--wait-for-marker")] = "--warm-up=600"
    process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 60
    while not (tmp_path / "last.pt").exists():
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert left(tmp_path / "state") == []
    assert process.returncode == 1 and "interrupted" in err and out == ""
    assert not [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if str(tmp_path) in _command(pid)]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
