"""Pictures need no network and no font of their own."""

from __future__ import annotations

import builtins
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.jobs import job_fleet
from tests.support.screens import make_app, running
from tui.config import NodeConfig
from tui.errors import Failed, WrongUsage
from tui.screenshot import clean_svg, go_to, take_screenshot, to_png, write_picture

PNG = b"\x89PNG\r\n\x1a\n"


async def drawn(screen: str = "fleet", node: str | None = None) -> str:
    app, _ = make_app(job_fleet() if screen in ("jobs", "job", "submit") else None)
    async with running(app, (120, 36)) as pilot:
        await go_to(app, pilot, screen, node)
        return clean_svg(app.export_screenshot(title="rackrate"))


async def test_an_svg_names_no_address_but_the_namespace_and_has_the_text() -> None:
    svg = await drawn()
    assert "@font-face" not in svg and "cdnjs" not in svg and "Fira" not in svg
    assert svg.count("http") == svg.count("http://www.w3.org/2000/svg")
    assert "DejaVu Sans Mono" in svg and "a100-half" in svg


@pytest.mark.parametrize(("screen", "part"), [("fleet", "IDLE"), ("node", "PCIe"), ("alerts", "SEVERITY"), ("help", "Filter"), ("jobs", "COST"), ("job", "gpu-01"), ("submit", "command")])
async def test_every_screen_can_be_drawn(screen: str, part: str) -> None:
    assert part in await drawn(screen)


async def test_the_node_asked_for_is_the_one_that_is_drawn() -> None:
    assert "v100-broken" in await drawn("node", "v100-broken")


async def test_a_png_is_a_png(tmp_path: Path) -> None:
    pytest.importorskip("resvg_py")
    svg = await drawn()
    assert to_png(svg).startswith(PNG)
    write_picture(svg, tmp_path / "new" / "x.png")
    assert (tmp_path / "new" / "x.png").read_bytes().startswith(PNG)
    write_picture(svg, tmp_path / "x.svg")
    assert (tmp_path / "x.svg").read_text(encoding="utf-8") == svg


def test_without_the_renderer_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "resvg_py":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.delitem(sys.modules, "resvg_py", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(Failed, match=r"pip install 'rackrate\[png\]'"):
        take_screenshot(SimpleNamespace(), [], str(tmp_path / "x.png"))  # type: ignore[arg-type]


def test_an_unknown_node_is_wrong_usage() -> None:
    with pytest.raises(WrongUsage, match="no node named `nope`"):
        take_screenshot(SimpleNamespace(), [NodeConfig(name="a", url="http://x:1")], "x.svg", node="nope")  # type: ignore[arg-type]


def test_a_file_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Failed, match="cannot be written"):
        write_picture("<svg/>", tmp_path / "file" / "x.svg")


async def test_braille_stands_in_elements_of_its_own_that_fill_their_cells() -> None:
    svg = await drawn("node", "a100-half")
    found = re.findall(r'textLength="([\d.]+)"[^>]*>([^<]*[\u2800-\u28ff][^<]*)<', svg)
    assert found
    for length, content in found:
        assert all("\u2800" <= character <= "\u28ff" for character in content)
        assert float(length) == pytest.approx(12.2 * len(content), abs=0.1)
