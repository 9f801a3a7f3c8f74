"""torchrun, whose end is one sentence: `python -m agent.recipes.torchrun --standalone --nproc-per-node 8 -m agent.recipes.vision`.

Over several nodes their agents put where they meet behind the module's name.

Invariant: the options, what is started and when it is ended are torchrun's; what a rank said stands alone, without a stack of
the launcher's own calls behind it, and the exit code is that of the rank that failed first.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Sequence

NO_TORCH = (
    "rackrate: the ranks cannot be started: {python} has no torch ({error}); install it there (`pip install torch`),"
    " or run another Python by --env PATH=/its/bin:/usr/bin:/bin."
)
FAILED, BY_SIGNAL = 1, 128


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code."""
    try:
        from torch.distributed import DistError, run
        from torch.distributed.elastic.multiprocessing.api import SignalException
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
        from torch.distributed.elastic.rendezvous import RendezvousError
    except ImportError as error:
        print(NO_TORCH.format(python=sys.executable, error=error), file=sys.stderr)
        return FAILED
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # it tells the same, with the code's lines
    try:
        run.main(list(sys.argv[1:] if argv is None else argv))
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        print(f"rackrate: rank {rank} {_how(failure.exitcode)}; the others were ended with it.", file=sys.stderr)
        return failure.exitcode if failure.exitcode > 0 else BY_SIGNAL - failure.exitcode
    except SignalException as told:
        name = signal.Signals(told.sigval).name
        print(f"rackrate: the launcher was told to stop ({name}), and has told the ranks.", file=sys.stderr)
        return BY_SIGNAL + int(told.sigval)
    except (RendezvousError, DistError) as error:
        said = " ".join(str(error).split("\n")[0].split()) or type(error).__name__
        print(f"rackrate: the nodes of the run did not meet, or have lost each other: {said.rstrip('.')}.", file=sys.stderr)
        return FAILED
    return 0


def _how(code: int) -> str:
    return f"ended with exit code {code}" if code > 0 else f"was killed by {signal.Signals(-code).name}"


if __name__ == "__main__":
    sys.exit(main())
