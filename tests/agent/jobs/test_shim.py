"""`agent.jobs.shim`: a job begins as what it should be or not at all, at most once, and its end is known whatever happens."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agent.isolation.limits import Limits
from agent.jobs.attempt_dir import boot_id, shim_argv
from tests.support.shims import HAS_CGROUPS, Shim, Shims, holders, needs_root, python, until

NOBODY = {"name": "nobody", "uid": 65534, "gid": 65534, "groups": []}
SHOW = """
import os
for line in open("/proc/self/status"):
    if line.split(":")[0] in ("Uid", "Gid", "Groups", "CapEff", "NoNewPrivs", "SigBlk", "SigIgn", "Seccomp"):
        print(line.strip().replace("\\t", " "))
print("umask", oct(os.umask(0)), "oom", open("/proc/self/oom_score_adj").read().strip(), "cwd", os.getcwd())
print("session", os.getsid(0) == os.getpid(), "core", [line for line in open("/proc/self/limits") if "core" in line][0].split()[4:6])
"""

WAITS = """
import os, sys, time
print("up", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
"""
LIBC_SIGNALS = 0x180000000
"""32 and 33: the C library's own, which no program can set; what they are is inherited."""


@pytest.fixture
def shims(tmp_path: Path) -> Iterator[Shims]:
    made = Shims(tmp_path)
    yield made
    made.clear()


@holders
@pytest.mark.parametrize(
    ("code", "exit_code", "number"), [("raise SystemExit(7)", 7, None), ("import os; os.kill(os.getpid(), 9)", None, 9)]
)
def test_an_exit_code_and_a_signal_are_told_apart(
    shims: Shims, holder: str, code: str, exit_code: int | None, number: int | None
) -> None:
    shim = shims(python(code), holder=holder).start()
    record = shim.end()
    assert (record.exit_code, record.signal, record.start_error, record.stop) == (exit_code, number, None, None)
    assert (record.job, record.attempt, record.boot_id) == (shim.job, 1, boot_id())
    assert (record.empty, record.left, record.group_removed, record.leftover_killed) == (True, (), True, 0)
    assert record.started_at is not None and record.ended_at is not None and record.started_at <= record.ended_at
    assert shim.dir.look(boot_id()) == "exited"
    assert sorted(os.listdir(shim.path)) == ["exit.json", "launch.json", "lock", "log", "shim.json"]


def closed_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o700)
    return folder


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"argv": ["no-such-program"]}, "the program no-such-program was not found in the job's PATH ("),
        ({"argv": ["./gone"]}, "the program ./gone was not found from "),
        (
            {"argv": ["{tmp}/plain"]},
            "the program {tmp}/plain may not be run by the agent's user: it is not executable for them",
        ),
        ({"argv": ["{tmp}/lines"]}, "is no program for this machine; a script needs a first line like #!/bin/sh"),
        ({"argv": ["{tmp}/orphaned"]}, "is there, but the interpreter that its first line names is not"),
        (
            {"directory": "{tmp}/nowhere"},
            "the working directory {tmp}/nowhere cannot be entered by the agent's user: No such file",
        ),
        ({"argv": ["a\0b"]}, "launch.json cannot be used ('a\\x00b' has a zero byte in it)"),
        ({"argv": []}, "launch.json cannot be used (argv is empty)"),
        ({"version": 9}, "launch.json is of version 9, and the job's process knows 1"),
        ({"stop": {}}, "launch.json lacks the key 'signal'"),
        ({"group": {"enforcement": "v2"}}, "the plan of the job's limits cannot be used"),
    ],
)
def test_what_cannot_be_started_is_one_sentence(shims: Shims, tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    (tmp_path / "plain").write_text("echo never\n")
    for name, text in (("lines", "echo never\n"), ("orphaned", "#!/no/such/interpreter\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    changes = json.loads(json.dumps(changes).replace("{tmp}", str(tmp_path)))
    record = shims(**{"argv": python("print('ran')"), **changes}).start().end()
    assert record.start_error is not None and sentence.replace("{tmp}", str(tmp_path)) in record.start_error
    assert (record.exit_code, record.signal, record.started_at, record.log_bytes) == (None, None, None, 0)


@needs_root
def test_what_another_user_may_not_do_is_said_with_their_name(shims: Shims, tmp_path: Path) -> None:
    folder = closed_folder(tmp_path)
    record = shims(["true"], user=NOBODY, directory=str(folder)).start().end()
    assert record.start_error == f"the working directory {folder} cannot be entered by user nobody: Permission denied"
    (folder / "tool").write_text("#!/bin/sh\n")
    (folder / "tool").chmod(0o755)
    record = shims([str(folder / "tool")], user=NOBODY).start().end()
    assert record.start_error is not None and "may not be run by user nobody" in record.start_error


@needs_root
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv, to take the right to become others")
def test_a_shim_without_the_right_to_it_cannot_become_another_user(shims: Shims) -> None:
    shim = shims(["true"], user=NOBODY)
    shim.dir.prepare(shim.launch)
    command = ["setpriv", "--bounding-set", "-setuid,-setgid", *shim_argv(shim.path)]
    shim.process = subprocess.Popen(command, start_new_session=True)
    assert shim.end().start_error == (
        "the job cannot run as user nobody: Operation not permitted; "
        "only an agent that runs as root can start jobs of other users"
    )


@needs_root
@holders
def test_a_job_of_another_user_has_their_rights_alone(shims: Shims, tmp_path: Path, holder: str) -> None:
    tmp_path.chmod(0o755)
    shim = shims(["/usr/bin/python3", "-I", "-S", "-c", SHOW], holder=holder, user=NOBODY, directory="/tmp")
    record = shim.start().end()
    assert (record.exit_code, record.start_error) == (0, None)
    lines = shim.log().splitlines()
    assert lines[:3] == ["Uid: 65534 65534 65534 65534", "Gid: 65534 65534 65534 65534", "Groups:"]
    assert "CapEff: 0000000000000000" in lines and "NoNewPrivs: 1" in lines and "SigBlk: 0000000000000000" in lines
    ignored = next(int(line.split()[1], 16) for line in lines if line.startswith("SigIgn:"))
    assert ignored & ~LIBC_SIGNALS == 0x01001000  # Python's own: SIGPIPE and SIGXFSZ
    assert lines[-2:] == ["umask 0o27 oom 0 cwd /tmp", "session True core ['0', '0']"]


def test_a_job_has_no_descriptor_and_no_variable_beyond_its_own(shims: Shims, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_SECRET", "hush")
    receive, send = os.pipe()
    try:
        shim = shims(["cat", "/proc/self/environ"], environment={"PATH": "/usr/bin:/bin", "A": "1 é"}).start(
            pass_fds=(receive, send)
        )
        shim.end()
        listing = shims(["ls", "-l", "/proc/self/fd"]).start(pass_fds=(receive, send), stdin=receive)
        listing.end()
    finally:
        os.close(receive)
        os.close(send)
    assert sorted(shim.log().rstrip("\0").split("\0")) == ["A=1 é", "PATH=/usr/bin:/bin"]
    rows = [line.split()[-3:] for line in listing.log().splitlines()[1:]]
    names = {row[0]: row[2] for row in rows}
    assert set(names) == {"0", "1", "2", "3"}
    assert names["0"] == "/dev/null" and names["1"].startswith("pipe:") and names["3"].startswith("/proc/")


def test_the_program_is_looked_for_in_the_jobs_own_path(shims: Shims, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/tool").write_text('#!/bin/sh\necho "$0 $1"\n')
    (tmp_path / "bin/tool").chmod(0o755)
    shim = shims(["tool", "é\n$HOME"], environment={"PATH": f"/nowhere:{tmp_path}/bin"}).start()
    assert shim.end().exit_code == 0
    assert shim.log() == f"{tmp_path}/bin/tool é\n$HOME\n"


def test_of_two_shims_one_runs(shims: Shims) -> None:
    shim = shims(python("print('ran', flush=True); import time; time.sleep(0.5)"))
    shim.dir.prepare(shim.launch)
    others = [subprocess.Popen(shim_argv(shim.path), start_new_session=True) for _ in range(3)]
    assert sorted(other.wait(60) for other in others) == [0, 3, 3]
    assert shim.log() == "ran\n"
    assert shim.start().process.wait(60) == 3  # type: ignore[union-attr]
    assert shim.log() == "ran\n"


def test_an_attempt_that_was_given_up_never_begins(shims: Shims) -> None:
    shim = shims(["echo", "ran"])
    shim.dir.prepare(shim.launch)
    assert shim.dir.look(boot_id()) == "not_started"
    assert shim.start().process.wait(60) == 3  # type: ignore[union-attr]
    assert shim.dir.exit() is None and not (shim.path / "log").exists()


def test_a_job_and_its_exit_outlive_a_killed_agent(shims: Shims, tmp_path: Path) -> None:
    go = tmp_path / "go"
    shim = shims(python(WAITS + "print('off'); raise SystemExit(5)", str(go)))
    shim.dir.prepare(shim.launch)
    start = "import subprocess, sys, time; subprocess.Popen(sys.argv[1:], start_new_session=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", start, *shim_argv(shim.path)]) as agent:
        shim.wrote("up")
        agent.kill()
    assert shim.dir.look(boot_id()) == "running"
    go.touch()
    until(lambda: shim.dir.exit() is not None)
    record = shim.dir.exit()
    assert record is not None and record.exit_code == 5
    assert shim.log() == "up\noff\n"


def test_a_killed_shim_leaves_a_lost_attempt_whose_processes_are_found(shims: Shims) -> None:
    child = "import os, time; os.fork() or os.fork(); print('up', flush=True); time.sleep(60)"
    shim = shims(python(child)).start().begun()
    until(lambda: shim.log().count("up") == 3)
    assert shim.process is not None
    leader = shim.dir.leader_pidfd()
    assert leader is not None
    os.close(leader)
    shim.process.kill()
    shim.process.wait()
    assert shim.dir.look(boot_id()) == "lost"
    assert shim.start().process.wait(60) == 3  # type: ignore[union-attr]
    assert set(shim.dir.orphans()) == set(shim.left()) != set()
    assert shim.dir.kill_orphans() == 3
    until(lambda: not shim.left())
    assert shim.dir.leader_pidfd() is None and shim.dir.shim_pidfd() is None


def test_a_shim_needs_nothing_good_from_who_starts_it(shims: Shims) -> None:
    """Signals blocked and ignored, and no descriptors at all: what a thread of a daemon may hand on."""
    shim = shims(python("import os, sys; os.write(1, b'x' * 200000); sys.exit(os.fork() and 4)"))
    shim.dir.prepare(shim.launch)
    start = (
        "import os, signal, sys\nsignal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nos.closerange(0, 3)\nos.execv(sys.argv[1], sys.argv[1:])"
    )
    shim.process = subprocess.Popen([sys.executable, "-c", start, *shim_argv(shim.path)], start_new_session=True)
    record = shim.end()
    assert (record.exit_code, record.log_bytes) == (4, 200_000)


def test_a_shim_lets_go_of_pipes_and_keeps_a_file_for_its_errors(shims: Shims, tmp_path: Path) -> None:
    go = tmp_path / "go"
    shim = shims(python(WAITS, str(go)))
    with (tmp_path / "errors").open("w") as errors:
        shim.start(stdout=subprocess.PIPE, stderr=errors)
    assert shim.process is not None and shim.process.stdout is not None
    assert shim.process.stdout.read() == b""  # at its end while the shim lives
    shim.process.stdout.close()
    shim.begun()
    assert [os.readlink(f"/proc/{shim.process.pid}/fd/{n}") for n in range(3)] == [
        "/dev/null",
        "/dev/null",
        str(tmp_path / "errors"),
    ]
    go.touch()
    shim.end()
    assert (tmp_path / "errors").read_text() == ""
    gone = subprocess.run(shim_argv(tmp_path / "gone"), capture_output=True, text=True, check=False)
    assert gone.returncode == 1 and "No such file or directory" in gone.stderr


def test_only_a_kill_ends_the_shim(shims: Shims, tmp_path: Path) -> None:
    go = tmp_path / "go"
    shim = shims(python(WAITS, str(go))).start().begun().wrote("up")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGUSR1, signal.SIGQUIT):
        shim.process.send_signal(number)  # type: ignore[union-attr]
    go.touch()
    assert shim.end().exit_code == 0


def test_a_broken_launch_is_recorded_under_the_folders_name(shims: Shims) -> None:
    shim = shims(["true"])
    shim.path.mkdir(parents=True)
    (shim.path / "launch.json").write_text("{")
    record = shim.start().end()
    assert (record.job, record.attempt) == (shim.job, 1)
    assert record.start_error is not None and record.start_error.startswith("launch.json cannot be used (")


@pytest.mark.skipif(not HAS_CGROUPS, reason="no cgroups can be made here")
def test_limits_hold_and_a_swallowed_oom_kill_is_counted(shims: Shims) -> None:
    eat = "b = b'x' * (256 << 20)"
    job = f"import os, sys\nif os.fork() == 0:\n {eat}\n os._exit(0)\nos.wait(); print('all is well')"
    shim = shims(python(job), holder="cgroup", limits=Limits(memory_bytes=64 << 20, pids=50)).start()
    record = shim.end()
    done = shim.dir.shim()
    assert done is not None and len(done.applied) >= 2 and not done.failed
    assert (record.exit_code, shim.log()) == (0, "all is well\n")
    assert record.counters.oom_kills == 1
    assert record.counters.memory_limit_bytes == 64 << 20
    assert record.group_removed


def test_a_limit_that_cannot_be_set_starts_nothing(shims: Shims, tmp_path: Path) -> None:
    leaf = tmp_path / "no-cgroup"
    leaf.mkdir()
    step = {"kind": "write", "path": f"{leaf}/gone/memory.max", "text": "1", "required": True, "limit": "memory"}
    group = {"enforcement": "v2", "steps": [step], "leaves": {"unified": str(leaf)}, "shim_leaf": None}
    record = shims(["echo", "ran"], group=group).start().end()
    assert record.start_error is not None and "memory.max cannot be set to '1'" in record.start_error
    assert record.log_bytes == 0


@holders
def test_a_hundred_shims_leave_nothing(shims: Shims, holder: str) -> None:
    count = 50

    def one(_: int) -> Shim:
        shim = shims(["sh", "-c", "sleep 0 & exit 3"], holder=holder).start()
        shim.end()
        return shim

    descriptors = len(os.listdir("/proc/self/fd"))
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(one, range(count)))
    assert [shim.dir.exit().exit_code for shim in done] == [3] * count  # type: ignore[union-attr]
    assert not any(shim.left() for shim in done[-3:])
    assert {name for shim in done for name in os.listdir(shim.path)} == {"exit.json", "launch.json", "lock", "log", "shim.json"}
    assert len(os.listdir("/proc/self/fd")) == descriptors
    for shim in done:
        for leaf in shim.launch["group"].get("leaves", {}).values():
            assert not os.path.exists(leaf)


def test_the_shim_imports_little(shims: Shims) -> None:
    code = (
        "import sys\n"
        f"sys.path.append({str(Path(__file__).parents[3])!r})\n"
        "import agent.jobs.shim.attempt, agent.isolation.group\n"
        "print(*sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {
        "subprocess",
        "asyncio",
        "typing",
        "dataclasses",
        "inspect",
        "msgspec",
        "pathlib",
        "threading",
        "logging",
    }
    assert {name for name in loaded if name.startswith("agent.")} >= {"agent.jobs.shim.tree", "agent.isolation.kernel"}
