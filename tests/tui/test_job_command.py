"""The command line of a job: read back by the shell and the program's own parser it is the same job."""

from __future__ import annotations

import getpass
import shlex
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import wire
from tests.support.fleets import AT
from tests.support.jobs import job, queued
from tui import jobspec
from tui.cli import build_parser
from tui.cli_jobs import split_command
from tui.job_again import again
from tui.job_command import array_text, duration_text, line, options_of, size_text
from tui.job_options import OPTIONS
from tui.ui.job_form import command_line, spec_of

ME = getpass.getuser()
PARSER = build_parser()


def read_back(text: str) -> tuple[wire.JobSpec, list[str]]:
    """As the shell and `rackrate` would take it."""
    program, *argv = shlex.split(text)
    assert program == "rackrate"
    before, behind = split_command(argv)
    arguments = PARSER.parse_args(before)
    wanted = jobspec.read({option.key: getattr(arguments, option.key) for option in OPTIONS}, behind or [])
    return wanted.spec, list(wanted.at)


texts = st.text(st.characters(exclude_categories=["C", "Z"], include_characters=" "), min_size=1, max_size=12)
arguments = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=12)
counts = st.integers(1, 1000)
amounts = st.decimals("0.000001", "9999", places=6)
specs = st.fixed_dictionaries(
    {"command": st.lists(arguments, min_size=1, max_size=4).filter(lambda words: bool(words[0])).map(tuple)},
    optional={
        "name": texts, "project": texts, "cpus": amounts, "cpu_quota": st.just(False), "memory_bytes": st.integers(1, 1 << 50),
        "pids": counts, "io_weight": counts, "time_limit_seconds": st.floats(0.001, 1e7), "budget_usd": amounts,
        "deadline": st.datetimes(datetime(2026, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC)), "interruptible": st.booleans(),
        "retries": st.integers(0, 1000), "priority": st.integers(-1000, 1000), "workdir": texts, "strict": st.booleans(),
        "env": st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True), arguments, max_size=2),
        "after": st.lists(st.sampled_from(["0abc00000001", "any:0abc00000002", "notok:x-1"]), max_size=2).map(tuple),
        "array": st.sets(st.integers(0, 99), max_size=9).map(lambda found: tuple(sorted(found))),
        "retry_on": st.sampled_from([None, ("oom",), ("oom", "exit")]), "stop_signal": st.sampled_from(["TERM", "USR1", "INT"]),
        "grace_seconds": st.floats(0.5, 1e5), "log_quota_bytes": st.integers(1, 1 << 40), "user": texts,
    },
)  # fmt: skip
gpus = st.one_of(
    st.fixed_dictionaries({"gpus": st.integers(0, 1024)}),
    st.fixed_dictionaries(
        {"gpu_share": st.decimals("0.000001", "0.999999", places=6), "gpu_memory_bytes": st.integers(1, 1 << 40)}
    ),
)


@given(specs, gpus)
def test_every_job_reads_back_as_itself(fields: dict[str, object], held: dict[str, object]) -> None:
    spec = wire.JobSpec(**{"user": ME, **fields, **held})  # type: ignore[arg-type]
    assert read_back(line(options_of(spec, ME), spec.command))[0] == spec


drafts = st.fixed_dictionaries(
    {"command": st.sampled_from(["python train.py", "a 'b c' \"$HOME\" *", "x -- -y --gpus 3", "-c", "a && b; c | d"])},
    optional={
        "gpus": st.sampled_from(["", "2", " 4 "]), "memory": st.sampled_from(["64G", "512M", "1000"]), "name": texts,
        "time_limit": st.sampled_from(["8h", "1h30m", "45s"]), "budget": st.sampled_from(["40usd", "$3.5"]), "project": texts,
        "shell": st.sampled_from(["", "yes"]), "interruptible": st.sampled_from(["", "yes"]), "priority": st.sampled_from(["-5", "7"]),
        "env": st.sampled_from(["A=1", "A='two words' B="]), "after": st.just("any:x y"), "chdir": st.just("/srv/-x y"),
        "node": st.sampled_from(["", "gpu-01", "-odd name"]), "cpus": st.just("8"), "grace": st.just("90s"),
    },
)  # fmt: skip


@given(drafts)
def test_what_is_typed_into_the_form_reads_back_as_the_job_that_would_be_sent(draft: dict[str, str]) -> None:
    spec, nodes = read_back(command_line(draft))
    assert spec == spec_of(draft)
    assert nodes == ([draft["node"].strip()] if draft.get("node") else [])


def test_what_is_not_right_yet_has_a_command_line_too() -> None:
    assert command_line({}) == "rackrate run"
    assert command_line({"gpus": "many", "command": "a 'b"}) == "rackrate run --gpus many"


@pytest.mark.parametrize(("seconds", "text"), [(28_800, "8h"), (5400, "1h30m"), (90_061, "1d1h1m1s"), (0.25, "0.25s"), (1e-7, "0.0000001s")])
def test_lengths_of_time_are_exact(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_sizes_and_arrays_are_short_where_they_can_be() -> None:
    assert (size_text(64 << 30), size_text(1000), size_text(1 << 41)) == ("64G", "1000", "2T")
    assert array_text((1, 2, 3, 7, 9), 2) == "1-3,7,9%2" and array_text((5,)) == "5-5"


def test_a_job_of_before_becomes_a_draft_that_asks_for_the_same() -> None:
    before = job(1, command=("python", "train.py", "--note", "two words"), memory_bytes=64 << 30, priority=-3, retries=2,
                 time_limit_seconds=28_800.0, budget_usd=Decimal("40"), interruptible=True, after=("any:0abc00000009",),
                 workdir="/srv/x", stop_signal="SIGUSR1", grace_seconds=90.0, user=ME)  # fmt: skip
    found = again(before, AT, ME)
    spec = spec_of(found.draft)
    assert (spec.command, spec.gpus, spec.memory_bytes, spec.priority, spec.retries) == (before.command, 2, 64 << 30, -3, 2)
    assert (spec.time_limit_seconds, spec.budget_usd, spec.interruptible) == (28_800, 40, True)
    assert (spec.after, spec.workdir, spec.stop_signal, spec.grace_seconds) == (("any:0abc00000009",), "/srv/x", "USR1", 90)
    assert read_back(command_line(found.draft))[0] == spec
    assert len(found.told) == 1 and "not told by the node" in found.told[0]


def test_what_cannot_be_taken_over_is_told() -> None:
    told = " ".join(
        again(
            job(1, secrets=("HF_TOKEN",), deadline=AT - timedelta(hours=1), gang="g", array="0abc00000007", array_index=3,
                command=("python3", "-m", "agent.recipes.vision")),
            AT, "me",
        ).told
    )  # fmt: skip
    for part in ("HF_TOKEN", "deadline is past", "ada's; this one runs as me", "task 3 of an array", "run --nodes", "--recipe vision"):
        assert part in told
    assert "It is an array" in " ".join(again(queued(1, array_counts={"running": 2}), AT, "ada").told)
    share = again(job(1, gpus_wanted=0, gpu_share=Decimal("0.50"), gpu_memory_bytes=20 << 30, shell=True, command=("a && b",)), AT, "ada")
    assert share.draft["gpu_share"] == "0.5" and share.draft["command"] == "a && b" and share.draft["shell"] == "yes"
    assert spec_of(share.draft).command == ("a && b",)
