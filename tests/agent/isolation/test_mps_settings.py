"""Values before the daemon sees them, and what is read back."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.errors import MpsFault
from agent.isolation import mps_settings
from agent.isolation.mps_control import ControlV2, bytes_of, client_rows, decimal_of, pids
from agent.wire.jobs import MpsSetting
from tests.support.fake_mps.rig import FakeMps, fake_mps

__all__ = ["fake_mps"]

GIB = 1 << 30
BAD_PERCENTAGES: dict[str, Any] = {
    "zero": Decimal(0), "above the whole": Decimal(150), "just above": Decimal("100.0001"), "negative": Decimal(-1), "a word": "abc",
    "too large for a float": "1e400", "a large decimal": Decimal("1e400"), "next to nothing": Decimal("1e-400"), "not a number": Decimal("NaN"),
    "a signalling one": Decimal("sNaN"), "infinite": Decimal("Infinity"), "another command": "33.3; quit", "another line": "33.3\nquit",
    "a line at the end": "33.3\n", "blanks": " 33 ", "an option": "-t 5", "hexadecimal": "0x10", "other digits": "٣٣", "empty": "",
    "true": True, "a float": 33.3, "a list": [33],
}  # fmt: skip
BAD_MEMORY: dict[str, Any] = {
    "zero": 0, "negative": -GIB, "below a MiB": 1000, "above the GPU's": 17 * GIB, "no unit": "2048", "a word": "abc", "zero with a unit": "0M",
    "above the GPU's, with a unit": "17G", "an unknown unit": "4K", "a fraction": "1.5G", "another command": "4G; quit", "another line": "4G\nquit",
    "true": True, "a float": 4e9, "not to be read back": 3 * GIB // 2,
}  # fmt: skip


@pytest.mark.parametrize("value", BAD_PERCENTAGES.values(), ids=BAD_PERCENTAGES)
def test_a_bad_percentage_is_refused(value: Any) -> None:
    with pytest.raises(MpsFault, match="percentage"):
        mps_settings.percentage(value)


@pytest.mark.parametrize("value", BAD_MEMORY.values(), ids=BAD_MEMORY)
def test_a_bad_memory_limit_is_refused(value: Any) -> None:
    with pytest.raises(MpsFault, match="limit"):
        mps_settings.default_memory_bytes(value, 16 * GIB)


def test_no_bad_value_reaches_the_daemon_whose_settings_stay(fake_mps: FakeMps) -> None:
    gpu = fake_mps.gpu()
    gpu.start()
    gpu.set(MpsSetting(active_thread_percentage=Decimal(40), pinned_memory_bytes=4 * GIB))
    before = fake_mps.commands()
    for value in BAD_PERCENTAGES.values():
        with pytest.raises(MpsFault):
            gpu.set(MpsSetting(active_thread_percentage=value))
    for value in BAD_MEMORY.values():
        with pytest.raises(MpsFault):
            gpu.set(MpsSetting(pinned_memory_bytes=value))
    for share in ("0", "1.5", "-0.5", "NaN", "0.0000001"):
        with pytest.raises(MpsFault):
            gpu.admit("a", Decimal(share))
    for memory in (0, -1, 17 * GIB, "4G; quit"):
        with pytest.raises(MpsFault):
            gpu.admit("a", Decimal("0.1"), memory)  # type: ignore[arg-type]
    assert fake_mps.commands() == before
    state = gpu.state()
    assert (state.active_thread_percentage, state.pinned_memory_bytes, state.shares) == (Decimal("40.0"), 4 * GIB, {})


@pytest.mark.parametrize("command", ["get_server_list\nquit", "quit;", "a`b`", "", "get_server_list \x00", "ps $(id)", "GET"])
def test_what_is_no_plain_command_is_never_sent(command: str, tmp_path: Path) -> None:
    with pytest.raises(MpsFault, match="no command"):
        ControlV2("/bin/true", tmp_path).ask(command)


@pytest.mark.parametrize("version", ["550", "535"])
def test_settings_are_read_back(fake_mps: FakeMps, version: str) -> None:
    gpu = fake_mps.gpu(version)
    gpu.start()
    gpu.set(MpsSetting(active_thread_percentage=Decimal("33.333333333"), pinned_memory_bytes=512 << 20))
    state = gpu.state()
    assert state.active_thread_percentage == Decimal("33.3")
    assert state.pinned_memory_bytes == 512 << 20
    sent = [command for command in fake_mps.commands() if command.startswith("set_")]
    assert sent == ["set_default_active_thread_percentage 33.3333", "set_default_device_pinned_mem_limit 0 512M"]


def test_a_daemon_that_does_not_take_a_setting_is_found_out(fake_mps: FakeMps) -> None:
    gpu = fake_mps.gpu(environment={"FAKE_MPS_DEAF": "1"})
    gpu.start()
    with pytest.raises(MpsFault, match=r"percentage: asked for 40, found 100\.0"):
        gpu.set(MpsSetting(active_thread_percentage=Decimal(40)))
    with pytest.raises(MpsFault, match="memory: asked for 4096M, found none"):
        gpu.set(MpsSetting(pinned_memory_bytes=4 * GIB))
    gpu.stop()
    gpu.start()
    assert not [command for command in fake_mps.commands() if command.startswith("set_")], (
        "what was not taken is not asked for again"
    )


def test_settings_outlive_the_daemon_and_the_agent(fake_mps: FakeMps) -> None:
    first = fake_mps.gpu()
    first.set(MpsSetting(active_thread_percentage=Decimal(40)))
    first.set(MpsSetting(pinned_memory_bytes=2 * GIB))
    first.start()
    first.stop()
    second = fake_mps.gpu()
    second.adopt({})
    assert second.state().active_thread_percentage == 40, "shown while the daemon is off"
    second.start()
    assert second.state().pinned_memory_bytes == 2 * GIB
    assert fake_mps.commands()[:5] == [
        "get_server_list",
        "set_default_active_thread_percentage 40", "get_default_active_thread_percentage",
        "set_default_device_pinned_mem_limit 0 2048M", "get_default_device_pinned_mem_limit 0",
    ]  # fmt: skip
    with pytest.raises(MpsFault, match="use 40 % of it"):
        second.admit("a", Decimal("0.5"))
    with pytest.raises(MpsFault, match="pin 2048M"):
        second.admit("a", Decimal("0.25"), 3 * GIB)


def test_a_setting_from_the_wire_keeps_its_digits() -> None:
    setting = msgspec.json.decode(b'{"active_thread_percentage": "33.3", "pinned_memory_bytes": 1073741824}', type=MpsSetting)
    assert mps_settings.percentage_text(mps_settings.percentage(setting.active_thread_percentage)) == "33.3"
    assert mps_settings.percentage_text(mps_settings.percentage(Decimal("1E+2"))) == "100"
    assert mps_settings.memory_text(mps_settings.memory_bytes("4G", None)) == "4096M"
    assert mps_settings.memory_bytes(5_000_000_000, None) == 4768 << 20, "never more than was asked for"


def test_answers_are_read_with_tolerance() -> None:
    assert pids("123\n\n 45 \nServer 7 not found\n-3\n0\n12x\n") == (123, 45)
    assert decimal_of(" 33.3 \n") == Decimal("33.3")
    assert decimal_of("Insufficient privileges for UID 65534.") is None
    assert [bytes_of(text) for text in ("2G", "512M\n", "5", "4GB", "", "abc")] == [
        2 * GIB,
        512 << 20,
        5 << 20,
        4 * GIB,
        None,
        None,
    ]
    six = "PID ID SERVER DEVICE NAMESPACE COMMAND\n 12 0 7 GPU-1-2 4026531836 python train.py --x\nnonsense\n13 1 7\n"
    eight = "PID ID SERVER STATUS DEVICE NAMESPACE PRIORITY COMMAND\n12 0 7 ACTIVE GPU-1-2 4026531836 0 python \x1b[2Jt\n"
    assert [tuple(row) for row in client_rows(six)] == [(12, 7, "python train.py --x")]
    assert [tuple(row) for row in client_rows(eight)] == [(12, 7, "python [2Jt")]
    assert client_rows("Server not found\n") == ()
