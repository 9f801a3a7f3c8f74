"""`agent.doctor`: what each check says of a machine that is good, and of one that is not."""

from __future__ import annotations

import json
import os
import socket
import threading
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent import cli, doctor, security, state
from agent.config import AgentConfig, NodeConfig
from agent.config_file import JobsTable
from agent.doctor import Finding
from agent.errors import ConfigurationError
from agent.isolation.host import HostIsolation, nothing


def fake_root(root: Path, **files: str) -> Path:
    """Files whose names have `__` for `/`."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def own_namespace(root: Path, name: str = "pid:[4026531836]") -> None:
    (root / "proc/self/ns").mkdir(parents=True)
    (root / "proc/self/ns/pid").symlink_to(name)


def examined(config: AgentConfig, monkeypatch: pytest.MonkeyPatch) -> list[doctor.Check]:
    monkeypatch.setattr(doctor, "check_driver", lambda: Finding("ok", "8 x H100"))
    return doctor.examine(lambda: config)


def test_the_checks_are_numbered_and_each_fault_has_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = examined(AgentConfig(state_dir=tmp_path / "s", node=NodeConfig(metadata=False)), monkeypatch)
    assert [check.number for check in checks] == list(range(1, 13))
    assert all(check.remedy for check in checks if check.status != "ok")
    assert not (tmp_path / "s").exists()
    text = doctor.render(checks)
    assert " 2. ok    driver and NVML: 8 x H100\n" in text
    assert text.splitlines()[-1].endswith(" failed")


def test_a_faulty_configuration_does_not_hide_the_checks_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> AgentConfig:
        raise ConfigurationError("agent.toml: node.nam: unknown key")

    monkeypatch.setattr(doctor, "check_driver", lambda: Finding("ok", "8 x H100"))
    checks = doctor.examine(fail)
    assert (checks[0].name, checks[0].status) == ("configuration", "fail")
    assert [check.name for check in checks[1:]] == ["driver and NVML", "cgroups", "other users' processes", "clock"]


def test_a_check_that_breaks_is_a_finding() -> None:
    def broken() -> Finding:
        raise ZeroDivisionError("oh")

    assert doctor._guarded(broken) == Finding("warn", "this check itself failed: ZeroDivisionError: oh", "report it")


def test_a_driver_that_hangs_is_said_and_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(doctor, "_ask_driver", lambda: release.wait(30) and Finding("ok", ""))
    found = doctor.check_driver(seconds=0.05)
    release.set()
    assert found.status == "fail"
    assert "did not answer" in found.detail


@pytest.mark.parametrize(
    ("files", "status", "words"),
    [
        ({"sys__fs__cgroup__cgroup.controllers": "cpuset cpu io memory pids\n"}, "ok", "version 2 with cpuset, cpu"),
        ({"sys__fs__cgroup__cgroup.controllers": "cpu\n"}, "warn", "version 2 without memory, pids"),
        ({"sys__fs__cgroup__memory__tasks": ""}, "warn", "version 1"),
        ({}, "warn", "none is mounted"),
    ],
)
def test_the_version_of_cgroups_is_told(tmp_path: Path, files: dict[str, str], status: str, words: str) -> None:
    found = doctor.check_cgroups(fake_root(tmp_path, **files))
    assert (found.status, found.detail[: len(words)]) == (status, words)


@pytest.mark.parametrize(
    ("host", "status", "detail", "remedy"),
    [
        (
            HostIsolation(enforcement="v2", controllers=frozenset({"cpu", "memory", "pids", "cpuset"})),
            "ok",
            "v2: cgroups version 2: cpu, cpuset, memory, pids",
            None,
        ),
        (
            HostIsolation(enforcement="hybrid", controllers=frozenset({"cpu", "freezer", "pids"}), reasons=("no memory here",)),
            "warn",
            "hybrid: cgroups version 1 for limits, version 2 for kill: cpu, pids; no memory here",
            "jobs run without the limits of memory: have the kernel or the container give them",
        ),
        (
            nothing("the cgroups are mounted read-only", "run on the host"),
            "warn",
            "nothing holds jobs in their limits; the cgroups are mounted read-only",
            "run on the host; until then jobs run without limits",
        ),
    ],
)
def test_what_holds_jobs_in_their_limits_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, host: HostIsolation, status: str, detail: str, remedy: str | None
) -> None:
    monkeypatch.setattr("agent.jobs.context.detect", lambda **_: host)
    found = doctor.check_isolation(AgentConfig(state_dir=tmp_path))
    assert found == Finding(status, detail, remedy)  # type: ignore[arg-type]


def test_a_configuration_that_asks_for_no_limits_is_told(tmp_path: Path) -> None:
    found = doctor.check_isolation(AgentConfig(state_dir=tmp_path, jobs=JobsTable(isolation="none")))
    assert (found.status, 'isolation = "auto"' in (found.remedy or "")) == ("warn", True)
    switched_off = doctor.check_isolation(AgentConfig(state_dir=tmp_path, jobs=JobsTable(enabled=False)))
    assert switched_off == Finding("ok", "jobs are switched off")


@pytest.mark.parametrize(
    ("capabilities", "mounts", "status"),
    [
        ("000001ffffffffff", "proc /proc proc rw 0 0\n", "ok"),
        ("0000000000000000", "proc /proc proc rw,nosuid 0 0\n", "warn"),
        ("0000000000000000", "proc /proc proc rw,hidepid=0 0 0\n", "warn"),
        ("0000000000000000", "proc /proc proc rw,hidepid=2 0 0\n", "fail"),
        ("0000000000000000", "proc /proc proc rw,hidepid=invisible 0 0\n", "fail"),
        ("000001ffffffffff", "proc /proc proc rw,hidepid=2 0 0\n", "ok"),
    ],
)
def test_whose_processes_can_be_seen(tmp_path: Path, capabilities: str, mounts: str, status: str) -> None:
    status_file = f"Name:\tx\nCapEff:\t{capabilities}\n"
    root = fake_root(tmp_path, proc__self__status=status_file, proc__self__mounts=mounts)
    own_namespace(root)
    assert doctor.check_processes(root).status == status


def test_a_container_sees_no_processes_of_the_host(tmp_path: Path) -> None:
    own_namespace(tmp_path, "pid:[4026532999]")
    found = doctor.check_processes(tmp_path)
    assert found.status == "warn"
    assert "--pid=host" in (found.remedy or "")


@pytest.mark.parametrize(("year", "synchronised", "status"), [(1970, True, "fail"), (2026, False, "warn"), (2026, True, "ok")])
def test_a_clock_that_is_wrong_is_found(year: int, synchronised: bool, status: str) -> None:
    assert doctor.check_clock(datetime(year, 6, 1, tzinfo=UTC), synchronised).status == status


def test_the_kernel_can_be_asked_about_the_clock() -> None:
    assert doctor._synchronised() in (True, False, None)


def test_a_state_directory_that_is_open_is_found(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert doctor.check_state(tmp_path) == Finding(
        "warn", f"{tmp_path} is open to other users (mode 0755)", f"chmod 700 {tmp_path}"
    )
    tmp_path.chmod(0o700)
    assert doctor.check_state(tmp_path) == Finding("ok", str(tmp_path))


def test_a_state_directory_in_use_names_the_process(tmp_path: Path) -> None:
    with state.claim(tmp_path / "s"):
        assert doctor.check_state(tmp_path / "s").detail.endswith(f"(process {os.getpid()})")


def test_a_file_in_the_place_of_the_state_directory_is_found(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("")
    assert doctor.check_state(tmp_path / "s").status == "fail"


@pytest.mark.parametrize(("free", "status"), [(1_000_000, "fail"), (500_000_000, "warn"), (50_000_000_000, "ok")])
def test_little_space_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, status: str) -> None:
    monkeypatch.setattr(state, "free_bytes", lambda directory: free)
    assert doctor.check_space(tmp_path / "not/there/yet").status == status


def test_a_token_that_others_can_read_is_found(tmp_path: Path) -> None:
    assert doctor.check_token(tmp_path) == Finding("ok", "made on the first start")
    token = security.ensure_token(tmp_path)
    assert doctor.check_token(tmp_path).detail == f"{security.token_id(token)}, mode 0600, and 0 further ones"
    (tmp_path / "token").chmod(0o644)
    assert doctor.check_token(tmp_path).status == "fail"


def test_a_port_that_is_taken_is_found(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        config = AgentConfig(state_dir=tmp_path / "s", listen=f"127.0.0.1:{taken.getsockname()[1]}")
        found = doctor.check_address(config)
        assert (found.status, "ss -ltnp" in (found.remedy or "")) == ("fail", True)
        with state.claim(tmp_path / "s"):
            assert doctor.check_address(config).status == "ok"
    assert doctor.check_address(config).detail == f"{config.listen} is free"


def test_an_address_of_another_machine_is_found(tmp_path: Path) -> None:
    found = doctor.check_address(AgentConfig(state_dir=tmp_path, listen="192.0.2.77:9477", tls_certificate=tmp_path / "c"))
    assert found.status == "fail"
    assert "cannot assign requested address" in found.detail


def test_an_open_address_without_tls_is_found(tmp_path: Path) -> None:
    found = doctor._guarded(lambda: doctor.check_address(AgentConfig(state_dir=tmp_path, listen="0.0.0.0:0")))
    assert found.status == "fail"
    assert "unencrypted" in found.detail


@pytest.mark.parametrize(("year", "status"), [(2026, "ok"), (2028, "warn"), (2029, "fail")])
def test_a_certificate_that_ends_soon_is_found(tmp_path: Path, year: int, status: str) -> None:
    from agent.certificate import make_certificate

    made = make_certificate(tmp_path, ["gpu-01"], now=datetime(2026, 1, 1, tzinfo=UTC))
    config = AgentConfig(state_dir=tmp_path, tls_certificate=made.path, tls_key=tmp_path / "tls.key")
    assert doctor.check_certificate(config, datetime(year, 3, 20, tzinfo=UTC)).status == status


def test_a_key_that_others_can_read_is_found(tmp_path: Path) -> None:
    made = security.make_certificate(tmp_path, ["gpu-01"])
    (tmp_path / "tls.key").chmod(0o644)
    config = AgentConfig(state_dir=tmp_path, tls_certificate=made.path, tls_key=tmp_path / "tls.key")
    found = doctor._guarded(lambda: doctor.check_certificate(config))
    assert (found.status, "chmod 600" in found.detail) == ("fail", True)


@pytest.mark.parametrize(
    ("node", "status"),
    [
        (NodeConfig(metadata=False), "warn"),
        (NodeConfig(metadata=False, usd_per_hour="3.10"), "ok"),
        (NodeConfig(metadata=False, instance_type="t", region="r", purchase="spot"), "ok"),
    ],
)
def test_a_node_that_cannot_be_priced_is_found(tmp_path: Path, node: NodeConfig, status: str) -> None:
    assert doctor.check_identity(AgentConfig(state_dir=tmp_path, node=node), tmp_path).status == status


def test_the_command_ends_with_1_where_something_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RACKRATE_HOME", str(tmp_path))
    monkeypatch.setenv("RACKRATE_METADATA", "off")
    monkeypatch.setattr(doctor, "check_driver", lambda: Finding("ok", "8 x H100"))
    assert cli.main(["doctor", "--json", "--listen", "127.0.0.1:0"]) == 0
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert {"number", "name", "status", "detail", "remedy"} == set(checks[0])
    monkeypatch.setattr(doctor, "check_driver", lambda: Finding("fail", "no", "do"))
    assert cli.main(["doctor"]) == 1
    assert "          -> do\n" in capsys.readouterr().out
