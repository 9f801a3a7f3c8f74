"""What the commands print."""

from __future__ import annotations

import pytest

from tui.output import MOST_FAILURES, say_failures


@pytest.mark.parametrize("count", [0, 1, MOST_FAILURES, MOST_FAILURES + 1, 1_000])
def test_of_many_nodes_that_fail_at_once_the_first_are_named_and_the_others_counted(
    count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    say_failures({f"n{number}": "silent" for number in range(count)})
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == "" and lines[:MOST_FAILURES] == [f"rackrate: n{number}: silent" for number in range(min(count, MOST_FAILURES))]
    more = "1 more node" if count == 21 else f"{count - 20:,} more nodes"
    assert lines[MOST_FAILURES:] == ([f"rackrate: and {more}; `rackrate nodes --json` has the `error` of each"] * (count > 20))
