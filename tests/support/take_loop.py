"""Takes endless usage into a ledger until it is killed, or until LAST. Arguments: LEDGER LAST [FILE_SIZE_LIMIT]."""

from __future__ import annotations

import resource
import sys
from itertools import count

from pricing.errors import LedgerFull
from pricing.ledger import Ledger
from pricing.usage import WHOLE_SHARE, Placed, Usage

PLACEMENTS = [Placed(1, "node", usd_per_hour="8", gpu_count=4)]
PAGE = 97


def row(sequence: int) -> Usage:
    """Row `sequence` of a node with four GPUs, ten seconds each; the holder changes every 25 rows."""
    step, gpu = divmod(sequence - 1, 4)
    starts_ms = 1_774_000_000_000 + step * 10_000
    user = ("ann", "bob", None)[step // 25 % 3]
    return Usage(
        sequence, starts_ms, starts_ms + 10_000, f"GPU-{gpu}", "held" if user else "idle", None, WHOLE_SHARE, user, None,
        f"job-{step // 25}", 0.5, 1234, "counter", 1,
    )  # fmt: skip


def take_next(ledger: Ledger, last: int) -> int:
    """Takes one page after the cursor; how many rows were new."""
    begin = ledger.cursor("node", "meter") + 1
    rows = [row(sequence) for sequence in range(begin, min(begin + PAGE, last + 1))]
    return ledger.take("node", "meter", rows, PLACEMENTS, 1, last_sequence=last).new


def main(path: str, last: str, limit: str = "") -> None:
    new = 0
    with Ledger.open(path, timeout_seconds=60) as ledger:
        print("ready", flush=True)
        if limit:
            resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
        try:
            for _ in count():
                new += take_next(ledger, int(last))
                if ledger.cursor("node", "meter") >= int(last):
                    break
        except LedgerFull as error:
            print("full", ledger.cursor("node", "meter"), error, flush=True)
            raise SystemExit(0) from None
    print("new", new, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
