"""Jobs that wait for others."""

from __future__ import annotations

import pytest

from agent.errors import JobRefused
from agent.jobs import dependencies
from agent.jobs.dependencies import Need, look, parse

A, B = "a" * 12, "b" * 12


def test_the_three_forms_are_read_each_once() -> None:
    assert parse((A, f"any:{B}", f"notok:{A}_7", A)) == (Need("well", A), Need("any", B), Need("notok", f"{A}_7"))


@pytest.mark.parametrize("text", ["", "job", "ok:" + A, "any:", "any:../x", f":{A}", f"any:any:{A}", A + "\n"])
def test_another_form_is_refused(text: str) -> None:
    with pytest.raises(JobRefused, match="`after` takes the id of a job"):
        parse((text,))


def test_a_job_that_is_not_known_or_is_itself_is_named() -> None:
    with pytest.raises(JobRefused, match=f"there is no job {B} on this node to wait for"):
        dependencies.check((A, f"any:{B}"), {A}.__contains__)
    with pytest.raises(JobRefused, match="cannot wait for itself"):
        dependencies.check((A,), {A}.__contains__, A)
    with pytest.raises(JobRefused, match="at most 100"):
        parse([A] * 101)


@pytest.mark.parametrize(
    ("kind", "well", "badly", "gone"),
    [("", "met", "never", "never"), ("any:", "met", "met", "met"), ("notok:", "never", "met", "never")],
)
def test_each_form_is_met_by_its_ends(kind: str, well: str, badly: str, gone: str) -> None:
    needs = parse((kind + A,))
    assert look(needs, {}).standing == "waits"
    assert A in (look(needs, {}).reason or "")
    assert [look(needs, {A: one}).standing for one in ("well", "badly", "gone")] == [well, badly, gone]


def test_one_that_can_never_be_met_decides_though_others_are_open() -> None:
    answer = look(parse((A, B)), {B: "badly"})
    assert (answer.standing, answer.reason) == ("never", f"its dependency {B} failed, so it will never start")


def test_only_exit_0_is_well() -> None:
    assert [dependencies.outcome(cause) for cause in ("exit:0", "exit:1", "oom", "cancelled", None)] == ["well"] + ["badly"] * 4
