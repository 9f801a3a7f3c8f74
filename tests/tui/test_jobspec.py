"""`tui.jobspec` and `tui.amounts`: what a person writes, and what is sent."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tui import amounts
from tui.errors import WrongUsage
from tui.job_options import OPTIONS
from tui.jobspec import read

NOW = datetime(2026, 3, 28, 17, 0, tzinfo=ZoneInfo("Europe/Berlin"))
COMMAND = ["python", "train.py"]


@pytest.mark.parametrize(
    ("text", "bytes"),
    [("20G", 20 * 2**30), ("512m", 512 * 2**20), ("1.5GiB", 3 * 2**29), ("20GB", 20 * 10**9), ("4096", 4096), ("1 KiB", 1024), ("2T", 2**41)],
)
def test_sizes(text: str, bytes: int) -> None:
    assert amounts.size(text) == bytes


@pytest.mark.parametrize(
    ("text", "seconds"), [("8h", 28_800), ("90m", 5_400), ("1h30m", 5_400), ("45s", 45), ("2d", 172_800), ("1.5h", 5_400), ("90", 90)]
)
def test_lengths_of_time(text: str, seconds: float) -> None:
    assert amounts.duration(text) == seconds


@pytest.mark.parametrize("text", ["40usd", "40 USD", "$40", "40", "40.00"])
def test_money(text: str) -> None:
    assert amounts.dollars(text) == 40


@pytest.mark.parametrize(
    ("text", "indexes", "at_once"),
    [
        ("10%2", tuple(range(1, 11)), 2), ("1-3", (1, 2, 3), None), ("0-9:3", (0, 3, 6, 9), None), ("1,3,7-9%1", (1, 3, 7, 8, 9), 1),
        ("5,", None, None), ("3-3", (3,), None), ("2,2,1", (1, 2), None),
    ],
)  # fmt: skip
def test_arrays(text: str, indexes: tuple[int, ...] | None, at_once: int | None) -> None:
    if indexes is None:
        with pytest.raises(ValueError, match="is no list of indexes"):
            amounts.array(text)
    else:
        assert amounts.array(text) == (indexes, at_once)


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("+6h", "2026-03-28T22:00"), ("+12h", "2026-03-29T04:00"), ("18:00", "2026-03-28T17:00"), ("16:30", "2026-03-29T14:30"),  # the clock goes forward at night
        ("2026-03-30T09:00", "2026-03-30T07:00"), ("2026-03-30T09:00Z", "2026-03-30T09:00"), ("2026-03-30 09:00+05:30", "2026-03-30T03:30"),
    ],
)  # fmt: skip
def test_moments_are_of_this_zone_unless_they_say_another(text: str, utc: str) -> None:
    assert amounts.moment(text, NOW) == datetime.fromisoformat(utc).replace(tzinfo=UTC)


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This machine is."""
    with monkeypatch.context() as there:
        there.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("in_berlin")
def test_a_deadline_beyond_a_clock_change_is_of_the_clocks_by_then() -> None:
    for text, utc in (("2031-01-15T18:00", "2031-01-15T17:00"), ("2031-07-15T18:00", "2031-07-15T16:00")):
        assert read({"deadline": text}, COMMAND).spec.deadline == datetime.fromisoformat(utc).replace(tzinfo=UTC)
    night = datetime(2026, 3, 28, 17, 0)
    assert read({"deadline": "16:30"}, COMMAND, now=night).spec.deadline == datetime(2026, 3, 29, 14, 30, tzinfo=UTC)
    assert read({"deadline": "+12h"}, COMMAND, now=night).spec.deadline == datetime(2026, 3, 29, 4, 0, tzinfo=UTC)


@pytest.mark.parametrize("text", ["+999999999d", "9999-12-31T23:59-14:00", "0001-01-01T00:00+14:00"])
def test_a_deadline_that_no_calendar_holds_is_a_sentence(text: str) -> None:
    with pytest.raises(WrongUsage, match="is outside the calendar"):
        read({"deadline": text}, COMMAND)


def test_every_option_reaches_the_spec(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("hush\n")
    wanted = read(
        {
            "gpus": "2", "cpus": "7.5", "cpu_quota": True, "memory": "64G", "pids": "8192", "io_weight": "50", "time_limit": "8h",
            "budget": "40usd", "deadline": "+6h", "interruptible": True, "retries": "3", "retry_on": "oom, exit",
            "after": ["any:abc", "train"], "array": "4%2", "priority": "-5", "name": "fine tune", "project": "p", "user": "ada",
            "env": ["A=1=2", "HOME", "EMPTY="], "secret": [f"KEY={tmp_path / 'key'}"], "workdir": str(tmp_path), "chdir": "src",
            "stop_signal": "sigusr1", "grace": "90", "idle_stop": "30m", "log_quota": "1G", "strict": True,
            "node": ["a", "b"], "on": "gpu:A100",
        },
        COMMAND, environ={"HOME": "/home/ada"}, now=NOW,
    )  # fmt: skip
    spec = wanted.spec
    assert spec.command == ("python", "train.py") and (spec.gpus, spec.cpus, spec.cpu_quota) == (2, Decimal("7.5"), True)
    assert (spec.memory_bytes, spec.pids, spec.io_weight, spec.log_quota_bytes) == (64 * 2**30, 8192, 50, 2**30)
    assert (spec.time_limit_seconds, spec.grace_seconds, spec.idle_stop_seconds) == (28_800, 90, 1_800)
    assert (spec.budget_usd, spec.deadline, spec.retries) == (40, datetime(2026, 3, 28, 22, tzinfo=UTC), 3)
    assert (spec.retry_on, spec.after, spec.array, spec.array_at_once) == (("oom", "exit"), ("any:abc", "train"), (1, 2, 3, 4), 2)
    assert (spec.priority, spec.name, spec.project, spec.user) == (-5, "fine tune", "p", "ada")
    assert spec.env == {"A": "1=2", "HOME": "/home/ada", "EMPTY": ""} and spec.secrets == {"KEY": "hush\n"}
    assert (spec.stop_signal, spec.workdir, spec.strict, spec.interruptible) == ("USR1", "src", True, True)
    assert (wanted.folder, wanted.at, wanted.on, wanted.nodes) == (tmp_path, ("a", "b"), "gpu:A100", 1)


def test_a_share_and_its_memory() -> None:
    spec = read({"gpu_share": "0.5", "gpu_memory": "20G"}, COMMAND).spec
    assert spec.gpu_share == Decimal("0.5") and spec.gpu_memory_bytes == 20 * 2**30


def test_a_run_over_several_nodes() -> None:
    wanted = read({"nodes": "2", "gpus": "8", "on_node_loss": "continue", "processes_per_node": "4", "rendezvous": "10.0.0.5:29500"}, COMMAND)
    assert (wanted.nodes, wanted.on_node_loss, wanted.processes_per_node, wanted.rendezvous) == (2, "continue", 4, "10.0.0.5:29500")


def test_a_file_has_the_options_as_keys_and_the_command_line_beats_it(tmp_path: Path) -> None:
    (tmp_path / "key.txt").write_text("hush")
    (tmp_path / "src").mkdir()
    file = tmp_path / "job.toml"
    file.write_text("""
        command = ["python", "train.py"]
        gpus = 2
        gpu-share = 0.5
        time_limit = 3600
        budget = "40usd"
        deadline = 2026-03-30T09:00:00Z
        array = "1-4%2"
        interruptible = true
        strict = false
        node = "a"
        after = ["x"]
        workdir = "src"
        [env]
        A = "1"
        [secret]
        KEY = "key.txt"
    """)
    with pytest.raises(WrongUsage, match="cannot be asked for together"):
        read({}, [], str(file))
    file.write_text(file.read_text().replace("gpu-share = 0.5", ""))
    wanted = read({"gpus": "1", "time_limit": "2h"}, ["other"], str(file))
    assert wanted.spec.command == ("other",) and wanted.spec.gpus == 1 and wanted.spec.time_limit_seconds == 7200
    wanted = read({}, [], str(file))
    assert wanted.spec.command == ("python", "train.py") and wanted.spec.gpus == 2 and wanted.spec.time_limit_seconds == 3600
    assert wanted.folder == tmp_path / "src" and wanted.spec.secrets == {"KEY": "hush"} and wanted.spec.env == {"A": "1"}
    assert wanted.spec.deadline == datetime(2026, 3, 30, 9, tzinfo=UTC) and wanted.at == ("a",) and not wanted.spec.strict


def test_a_text_for_the_shell_is_one_word(tmp_path: Path) -> None:
    assert read({"shell": True}, ["a && b"]).spec.command == ("a && b",)
    file = tmp_path / "job.toml"
    file.write_text('command = "a && b"\nshell = true\n')
    spec = read({}, [], str(file)).spec
    assert spec.shell and spec.command == ("a && b",)


BAD: list[tuple[dict[str, Any], list[str], str]] = [
    ({}, [], "there is no command to run"),
    ({"gpus": "two"}, COMMAND, "--gpus: 'two' is no whole number"),
    ({"gpus": "-1"}, COMMAND, "--gpus: '-1' has to be from 0 to"),
    ({"gpus": "1.5"}, COMMAND, "--gpus: '1.5' is no whole number"),
    ({"gpu_share": "1.5"}, COMMAND, "--gpu-share 1.5: a share is above 0 and below 1"),
    ({"gpu_share": "1"}, COMMAND, "a share is above 0 and below 1"),
    ({"gpu_share": "0"}, COMMAND, "has to be a number above 0"),
    ({"gpu_share": "nan"}, COMMAND, "has to be a number above 0"),
    ({"gpu_share": "0.0000001"}, COMMAND, "in steps of a millionth"),
    ({"gpu_share": "0.5", "gpus": "1"}, COMMAND, "cannot be asked for together"),
    ({"gpu_memory": "20G"}, COMMAND, "--gpu-memory goes with --gpu-share"),
    ({"gpu_share": "0.5", "gpu_memory": "much"}, COMMAND, "'much' is no size; write it as"),
    ({"memory": "0"}, COMMAND, "more than nothing"),
    ({"memory": "-5G"}, COMMAND, "is no size"),
    ({"memory": "5iB"}, COMMAND, "is no size"),
    ({"cpus": "none"}, COMMAND, "--cpus: 'none' is no number"),
    ({"cpu_quota": True}, COMMAND, "--cpu-quota needs --cpus"),
    ({"pids": "0"}, COMMAND, "from 1 to"),
    ({"io_weight": "10001"}, COMMAND, "from 1 to 10000"),
    ({"time_limit": "8 hours"}, COMMAND, "is no length of time; write it as"),
    ({"time_limit": "0"}, COMMAND, "more than nothing"),
    ({"time_limit": "h"}, COMMAND, "is no length of time"),
    ({"budget": "40eur"}, COMMAND, "is in EUR; amounts are in US dollars"),
    ({"budget": "lots"}, COMMAND, "is no amount of money"),
    ({"budget": "0"}, COMMAND, "more than nothing"),
    ({"deadline": "tomorrow"}, COMMAND, "is no moment; write it as"),
    ({"deadline": "25:00"}, COMMAND, "is no time of day"),
    ({"deadline": "2026-03-30"}, COMMAND, "has no time of day"),
    ({"deadline": "+soon"}, COMMAND, "is no length of time"),
    ({"retries": "many"}, COMMAND, "--retries: 'many' is no whole number"),
    ({"priority": "1001"}, COMMAND, "from -1000 to 1000"),
    ({"array": "0"}, COMMAND, "an array without a task"),
    ({"array": "5-2"}, COMMAND, "which is empty"),
    ({"array": "1-10%0"}, COMMAND, "no number of tasks at once"),
    ({"array": "1-99999"}, COMMAND, "more than 10000 tasks"),
    ({"array": "a-b"}, COMMAND, "is no list of indexes"),
    ({"after": ["../../etc"]}, COMMAND, "that is no job"),
    ({"after": ["maybe:abc"]}, COMMAND, "that is no job"),
    ({"env": ["A B=1"]}, COMMAND, "no name of an environment variable"),
    ({"env": ["=1"]}, COMMAND, "it is written K=V"),
    ({"env": ["NOT_SET_HERE"]}, COMMAND, "--env NOT_SET_HERE: it is not set here"),
    ({"secret": ["KEY"]}, COMMAND, "it is written NAME=FILE"),
    ({"secret": ["../KEY=x"]}, COMMAND, "a secret's name is"),
    ({"secret": ["KEY=/nonexistent/key"]}, COMMAND, "/nonexistent/key is no file"),
    ({"secret": ["KEY=/dev/zero"]}, COMMAND, "/dev/zero is no file"),
    ({"workdir": "/nonexistent/dir"}, COMMAND, "--workdir: /nonexistent/dir does not exist; a folder of the node itself is named with --chdir"),
    ({"workdir": "/etc/passwd"}, COMMAND, "is no folder"),
    ({"workdir": "/tmp", "chdir": "../up"}, COMMAND, "inside of what is sent"),
    ({"stop_signal": "STOPPIT"}, COMMAND, "there is no such signal"),
    ({"stop_signal": "99"}, COMMAND, "there is no such signal"),
    ({"idle_stop": "30m"}, COMMAND, "--idle-stop looks at GPUs"),
    ({"name": "a\x1b[31mb"}, COMMAND, "--name has to be a text without control characters"),
    ({"shell": True}, COMMAND, "with --shell the command is one text"),
    ({"nodes": "0"}, COMMAND, "from 1 to"),
    ({"nodes": "2", "array": "3"}, COMMAND, "--array and --nodes cannot be asked for together"),
    ({"nodes": "2", "node": ["a"]}, COMMAND, "only 1 nodes are named with --node"),
    ({"on_node_loss": "stop"}, COMMAND, "--on-node-loss goes with --nodes 2 or more"),
    ({"nodes": "2", "on_node_loss": "panic"}, COMMAND, "'panic' is none of stop, continue"),
    ({"nodes": "2", "rendezvous": "a b"}, COMMAND, "it is written HOST or HOST:PORT"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "command", "words"), BAD)
def test_what_cannot_be_meant_is_one_sentence(options: dict[str, Any], command: list[str], words: str) -> None:
    with pytest.raises(WrongUsage, match=re.escape(words)) as wrong:
        read(options, command, environ={})
    assert "\n" not in str(wrong.value) and "\x1b" not in str(wrong.value) and wrong.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gpu = 2\n", "unknown key `gpu`; did you mean `gpus`?"),
        ("color = 'red'\n", "unknown key `color`; there are command, node"),
        ("gpus = 'two'\n", "`gpus`: 'two' is no whole number"),
        ("gpus = [2]\n", "`gpus` has to be a text or a number"),
        ("gpus = true\n", "`gpus` has to be a text or a number"),
        ("strict = 'yes'\n", "`strict` has to be true or false"),
        ("command = 'python train.py'\n", "write it as a list"),
        ("command = [1]\n", "has to be a list of texts"),
        ("command = []\n", "has to be a list of texts"),
        ("env = 'A=1'\n[x]\n", "unknown key `x`"),
        ("[env]\nA = 1\n", "`A` has to be a text"),
        ("[secret]\nKEY = 'gone.txt'\n", "gone.txt is no file"),
        ("after = [1]\n", "`after` has to be a text, or a list of texts"),
        ("gpus = \n", "is not valid TOML"),
    ],
)
def test_a_wrong_file_names_file_and_key(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "job.toml"
    file.write_text(text if "command" in text else f'command = ["x"]\n{text}')
    with pytest.raises(WrongUsage, match=re.escape(words)) as wrong:
        read({}, [], str(file))
    assert "job.toml" in str(wrong.value)


def test_a_file_that_is_not_there_says_where_a_command_goes(tmp_path: Path) -> None:
    for path, words in ((tmp_path / "no.toml", "no such file; a command goes after --"), (tmp_path, "is a directory")):
        with pytest.raises(WrongUsage, match=words):
            read({}, [], str(path))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(WrongUsage, match="is no TOML file"):
        read({}, [], str(tmp_path / "binary"))


def test_a_secret_is_in_no_sentence(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("hush")
    with pytest.raises(WrongUsage) as wrong:
        read({"secret": [f"KEY={tmp_path / 'key'}"], "gpus": "2", "gpu_share": "0.5"}, COMMAND)
    assert "hush" not in str(wrong.value)


def test_each_option_has_help_and_one_flag() -> None:
    assert len({option.flag for option in OPTIONS}) == len(OPTIONS) and all(option.help for option in OPTIONS)
