"""`discover aws`: what runs in the account, as lines that a shell can run."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pricing.sources.aws_session import AwsSession
from tests.support.aws_stubs import Aws
from tests.support.cli import Done, write_config
from tui import price_sources

ASKED = "describe_instances"
Run = Callable[..., Done]
WORDS = ("discover", "aws", "--region", "us-east-1")


def instance(number: int, kind: str = "p4d.24xlarge", name: str | None = None, **change: object) -> dict[str, Any]:
    return {
        "InstanceId": f"i-0{number}", "InstanceType": kind, "Placement": {"AvailabilityZone": "us-east-1a"},
        "PrivateIpAddress": f"10.0.0.{number}", "LaunchTime": datetime(2026, 8, 1, tzinfo=UTC),
        "Tags": [{"Key": "Name", "Value": name}] if name else [], **change,
    }  # fmt: skip


def answer(*instances: dict[str, Any], token: str = "") -> dict[str, Any]:
    return {"Reservations": [{"Instances": [one]} for one in instances], "NextToken": token}


def test_running_gpu_instances_of_all_pages_are_lines_that_a_shell_can_run(run: Run, aws: Aws, tmp_path: Path) -> None:
    write_config(tmp_path, '[[nodes]]\nname = "known"\nurl = "https://10.0.0.3:9477"\n')
    aws.lay("ec2", ASKED, answer(instance(1, name="a; rm -rf \x1b[2J~", InstanceLifecycle="spot"), instance(2, "m5.large"), token="x"))
    aws.lay("ec2", ASKED, answer(instance(3, name="known"), instance(4, PrivateIpAddress="")))
    done = run("--token-file", "my token")
    assert done.code == 0 and "\x1b" not in done.out + done.err
    (line,) = done.out.splitlines()
    words = shlex.split(line, comments=True)
    assert words[:3] == ["rackrate", "add", "https://10.0.0.1:9477"] and words[-2:] == ["--token-file", "my token"]
    assert words[4].startswith("a; rm -rf") and line.endswith("# p4d.24xlarge spot us-east-1a i-01")
    assert "known: https://10.0.0.3:9477 is configured" in done.err and "i-04: it has no private address" in done.err
    assert aws.asked(ASKED)[0]["Filters"] == [{"Name": "instance-state-name", "Values": ["running"]}]


def test_tags_name_instances_of_any_type_and_json_tells_all(run: Run, aws: Aws) -> None:
    aws.lay("ec2", ASKED, answer(instance(2, "m5.large", PublicIpAddress="3.3.3.3")))
    (record,) = run("--tag", "team=vision", "--public", "--http", "--port", "80", "--json").json()["instances"]
    assert record["url"] == "http://3.3.3.3:80" and record["purchase"] == "on_demand" and record["configured"] is False
    assert record["ident"] == "i-02" and record["name"] is None and record["launched_at"] == "2026-08-01T00:00:00+00:00"
    assert {"Name": "tag:team", "Values": ["vision"]} in aws.asked(ASKED)[0]["Filters"]
    aws.lay("ec2", ASKED, answer())
    done = run("--tag", "team=none")
    assert done.code == 0 and done.out == "" and "No running instance has these tags in us-east-1." in done.err


def test_add_tells_of_each_that_does_not_answer_and_keeps_nothing_of_it(run: Run, aws: Aws, tmp_path: Path) -> None:
    aws.lay("ec2", ASKED, answer(instance(1, name="gone", PrivateIpAddress="127.0.0.1")))
    done = run("--http", "--port", "1", "--add")
    assert done.code == 4 and "gone: 127.0.0.1 port 1 is not reachable" in done.err
    assert not (tmp_path / "config.toml").exists()


def test_wrong_words_and_a_key_without_permission_are_sentences(run: Run, aws: Aws) -> None:
    assert run("--tag", "team").code == 2 and run("--port", "0").code == 2
    aws.refuse("ec2", ASKED, "UnauthorizedOperation")
    done = run()
    assert done.code == 1 and "ec2:DescribeInstances" in done.err


def test_without_a_key_it_says_what_it_needs_and_nothing_of_prices(run: Run, aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(price_sources, "aws_session", AwsSession)
    done = run()
    assert done.code == 1 and "aws configure" in done.err and "all it needs is ec2:DescribeInstances." in done.err
    assert "price" not in done.err
