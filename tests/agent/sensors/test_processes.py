"""Who a pid is, from a /proc of our own making and from the real one."""

from __future__ import annotations

import getpass
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent.sensors.processes import COMMAND_LENGTH, INVISIBLE, ProcessTable, clean_text

TICKS = os.sysconf("SC_CLK_TCK")


def write_process(
    root: Path, pid: int, *, command: bytes = b"python\0train.py\0", environment: bytes = b"", start: int = 100, uid: int = 0, name: bytes = b"python",
    cgroup: str = "0::/user.slice"
) -> None:
    """One process of a made-up /proc."""
    folder = root / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    (root / "stat").write_text("cpu 1 2 3\nbtime 1700000000\n")
    (folder / "stat").write_bytes(b"%d (%s) S " % (pid, name) + b"0 " * 18 + b"%d 0 0\n" % start)
    (folder / "cmdline").write_bytes(command)
    (folder / "comm").write_bytes(name + b"\n")
    (folder / "status").write_text(f"Name:\tpython\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    (folder / "environ").write_bytes(environment)
    (folder / "cgroup").write_text(cgroup + "\n")


def test_a_process_is_described_from_proc(tmp_path: Path) -> None:
    write_process(tmp_path, 7, start=50 * TICKS, environment=b"A=1\0RACKRATE_JOB=j-1\0SLURM_JOB_ID=9\0RACKRATE_PROJECT=vision\0")
    facts = ProcessTable(tmp_path).describe([7])[7]
    assert (facts.user, facts.command, facts.job, facts.project) == ("root", "python train.py", "j-1", "vision")
    assert facts.started_at == datetime.fromtimestamp(1_700_000_050, UTC) and facts.visible


def test_a_slurm_job_and_account_stand_in_for_ours(tmp_path: Path) -> None:
    write_process(tmp_path, 7, environment=b"SLURM_JOB_ID=4711\0SLURM_JOB_ACCOUNT=physics\0")
    facts = ProcessTable(tmp_path).describe([7])[7]
    assert (facts.job, facts.project) == ("slurm-4711", "physics")


JOB = "0r4kzt1ab2cd"


@pytest.mark.parametrize(
    "cgroup",
    [
        f"0::/rackrate/job-{JOB}-1",
        f"0::/rackrate/job-{JOB}-12/deeper/job-zzzzzzzzzzzz-1",
        f"0::/rackrate.slice/rackrate-job-{JOB}-1.scope/job",
        f"12:pids:/\n4:memory:/rackrate/job-{JOB}-1\n1:name=systemd:/user.slice\n0::/",
        f"4:memory:/kubepods/pod7/rackrate/job-{JOB}-1",
    ],
    ids=["v2", "a group of its own below", "systemd", "v1", "in a container"],
)
def test_the_job_is_that_of_the_cgroup_whatever_the_environment_says(tmp_path: Path, cgroup: str) -> None:
    write_process(tmp_path, 7, cgroup=cgroup, environment=b"RACKRATE_JOB=forged\0RACKRATE_PROJECT=vision\0")
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountinfo").write_text(
        "30 23 0:29 / /proc rw - proc proc rw\n35 31 0:32 /kubepods/pod7 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    )
    facts = ProcessTable(tmp_path).describe([7])[7]
    assert (facts.job, facts.project) == (JOB, "vision")


def test_the_task_of_an_array_and_another_parent_are_known_too(tmp_path: Path) -> None:
    write_process(tmp_path, 7, cgroup=f"0::/ours.slice/ours-a.slice/ours-a-job-{JOB}_17-3.scope")
    assert ProcessTable(tmp_path, cgroup_parent="ours-a").describe([7])[7].job == f"{JOB}_17"


@pytest.mark.parametrize(
    "cgroup",
    [
        f"0::/user.slice/user-1000.slice/user@1000.service/rackrate/job-{JOB}-1",
        f"0::/user.slice/user-1000.slice/rackrate-job-{JOB}-1.scope",
        f"0::/rackrate/shims/job-{JOB}-1",
        f"0::/rackrate/job-{JOB}",
        "0::/rackrate/job-../../x-1",
        f"0::/other/job-{JOB}-1",
        "garbage",
        "",
    ],
)
def test_a_group_that_anybody_could_make_names_no_job(tmp_path: Path, cgroup: str) -> None:
    write_process(tmp_path, 7, cgroup=cgroup, environment=b"RACKRATE_JOB=j-1\0")
    assert ProcessTable(tmp_path).describe([7])[7].job == "j-1"


def test_an_environment_that_may_not_be_read_leaves_the_job_unknown(tmp_path: Path) -> None:
    write_process(tmp_path, 7)
    (tmp_path / "7/environ").unlink()
    facts = ProcessTable(tmp_path).describe([7])[7]
    assert (facts.job, facts.project, facts.command) == (None, None, "python train.py")


def test_an_unknown_pid_is_invisible(tmp_path: Path) -> None:
    assert ProcessTable(tmp_path).describe([4711, 0]) == {4711: INVISIBLE, 0: INVISIBLE}


def test_a_user_without_an_account_is_a_number(tmp_path: Path) -> None:
    write_process(tmp_path, 7, uid=3_999_999_999)
    assert ProcessTable(tmp_path).describe([7])[7].user == "3999999999"


def test_a_process_without_arguments_is_named_by_its_short_name(tmp_path: Path) -> None:
    write_process(tmp_path, 7, command=b"", name=b"odd) (\x1b[31mname")
    assert ProcessTable(tmp_path).describe([7])[7].command == "[odd) ([31mname]"


def test_a_reused_pid_is_not_described_as_its_predecessor(tmp_path: Path) -> None:
    table = ProcessTable(tmp_path, clock=lambda: 0.0)
    write_process(tmp_path, 7, command=b"old\0")
    assert table.describe([7])[7].command == "old"
    write_process(tmp_path, 7, command=b"new\0")
    assert table.describe([7])[7].command == "old"  # the same process: remembered
    write_process(tmp_path, 7, command=b"new\0", start=101)
    assert table.describe([7])[7].command == "new"


def test_a_program_that_renames_itself_is_seen_after_half_a_minute(tmp_path: Path) -> None:
    now = 0.0
    table = ProcessTable(tmp_path, clock=lambda: now)
    write_process(tmp_path, 7, command=b"python\0")
    table.describe([7])
    write_process(tmp_path, 7, command=b"ray::train")
    now = 30.0
    assert table.describe([7])[7].command == "ray::train"


def test_what_one_gpu_asks_does_not_make_another_forget(tmp_path: Path) -> None:
    table = ProcessTable(tmp_path, clock=lambda: 0.0)
    for pid in (7, 8):
        write_process(tmp_path, pid)
        table.describe([pid])
    for pid in (7, 8):
        (tmp_path / str(pid) / "cmdline").unlink()
        assert table.describe([pid])[pid].command == "python train.py"


def test_pids_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    now = 0.0
    table = ProcessTable(tmp_path, clock=lambda: now)
    for pid in range(1, 100):
        write_process(tmp_path, pid)
    table.describe(range(1, 100))
    for now in (31.0, 62.0, 93.0):
        table.describe([1])
    assert len(table._cache) == 1


def test_this_process_is_described_from_the_real_proc() -> None:
    facts = ProcessTable().describe([os.getpid()])[os.getpid()]
    assert facts.user == getpass.getuser() and "python" in (facts.command or "")


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        (b"\x1b[31mred", "[31mred"),
        (b"a\x00b\x7fc\xc2\x9bd", "abcd"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        ("right\u202eleft\u2066\u2028", "rightleft"),
        ("lone\udc80", "lone"),
        (b"two\r\n\tlines ", "two lines"),
        ("日本 ü", "日本 ü"),
    ],
)
def test_outside_text_is_made_fit_for_a_terminal(raw: bytes | str, clean: str) -> None:
    assert clean_text(raw) == clean


def test_a_long_command_is_cut_with_a_mark() -> None:
    text = clean_text("x" * 1000)
    assert len(text) == COMMAND_LENGTH and text.endswith("…")


def write_stat(
    root: Path, pid: int, parent: int, cpu_ticks: int = 0, pages: int = 0, start: int = 100, command: bytes = b"python\0", session: int = 5, uid: int = 0
) -> None:
    """A process with a parent, a session, CPU time and memory."""
    write_process(root, pid, start=start, command=command, uid=uid)
    fields = ["S", parent, 0, session, *[0] * 7, cpu_ticks, *[0] * 7, start, 0, pages]
    (root / str(pid) / "stat").write_text(f"{pid} (py (x) y) {' '.join(map(str, fields))}\n")


def test_a_process_tells_its_parent_its_share_of_a_cpu_and_its_memory(tmp_path: Path) -> None:
    now = 100.0
    table = ProcessTable(tmp_path, clock=lambda: now)
    write_stat(tmp_path, 7, 5, cpu_ticks=10 * TICKS, pages=3)
    first = table.describe([7])[7]
    assert (first.parent_pid, first.cpu_ratio, first.host_memory_bytes) == (5, None, 3 * os.sysconf("SC_PAGE_SIZE"))
    now += 2
    write_stat(tmp_path, 7, 5, cpu_ticks=13 * TICKS, pages=4)
    assert table.describe([7])[7].cpu_ratio == 1.5
    now += 0.01
    assert table.describe([7])[7].cpu_ratio == 1.5, "asked again at once for another GPU"


def test_ancestors_go_up_to_the_shell_of_the_session_and_no_further(tmp_path: Path) -> None:
    write_stat(tmp_path, 7, 6, session=7)
    write_stat(tmp_path, 8, 6, session=8)
    write_stat(tmp_path, 6, 5, command=b"torchrun\0train.py\0")
    write_stat(tmp_path, 5, 4, command=b"/bin/bash\0run.sh\0")
    write_stat(tmp_path, 4, 3, command=b"python\0server.py\0", session=3)
    table = ProcessTable(tmp_path)
    assert [(one.pid, one.parent_pid, one.command) for one in table.ancestors({7, 8})] == [
        (6, 5, "torchrun train.py"), (5, 4, "/bin/bash run.sh"),
    ]  # fmt: skip
    assert [one.pid for one in table.ancestors({6, 7})] == [5], "one that holds a GPU itself is no ancestor"
    assert table.ancestors({99}) == ()


def test_ancestors_are_of_the_same_user_and_no_daemons(tmp_path: Path) -> None:
    write_stat(tmp_path, 7, 6, uid=12345)
    write_stat(tmp_path, 6, 5, uid=12345, command=b"sshd: ada\0")
    write_stat(tmp_path, 17, 16, uid=12345)
    write_stat(tmp_path, 16, 1, uid=0, command=b"bash\0")
    assert ProcessTable(tmp_path).ancestors({7, 17}) == ()


def test_a_ring_of_parents_ends(tmp_path: Path) -> None:
    write_stat(tmp_path, 7, 8)
    write_stat(tmp_path, 8, 9)
    write_stat(tmp_path, 9, 8)
    assert len(ProcessTable(tmp_path).ancestors({7})) == 2
