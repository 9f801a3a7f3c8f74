"""The search of a log by itself: it comes to its end, and rests there."""

from __future__ import annotations

import asyncio

import pytest

from agent import wire
from tui.job_log import LogBuffer
from tui.job_search import wanted
from tui.ui.log_search import LogSearch


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("text", ["loss 1\nother\nloss 2\n", "loss 1\nother\nloss 2\nno end", ""])
async def test_what_was_looked_through_is_not_looked_through_again(text: str, ended: bool) -> None:
    buffer, told, asked = LogBuffer(), [], []

    def page(offset: int) -> wire.LogPage:
        rest = text[offset:]
        return wire.LogPage(job="a" * 32, attempt=1, first_offset=0, offset=offset, next_offset=len(text), text=rest, ended=ended)

    async def ask(offset: int, *_: object) -> wire.LogPage:
        asked.append(offset)
        return page(offset)

    buffer.append(page(0))
    search = LogSearch(buffer, ask, lambda: told.append(search.progress()))
    search.begin(wanted("loss"), asyncio.ensure_future)
    for _ in range(50):
        await asyncio.sleep(0)
    assert search.found == ([0, 13] if text else []) and search.progress() in ((1.0, 20 / 26) if text else (1.0,))
    assert len(told) <= 2 and len(asked) <= 2, "it goes on where there is nothing left"
    search.close()
