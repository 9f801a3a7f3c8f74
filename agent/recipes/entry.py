"""From a command line to a finished training: settings, torch, ranks, the loop; each fault is one sentence.

Invariant: `--help` and a wrong setting need no torch, and a missing torch is told before anything else is tried.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from agent.recipes.faults import RecipeFault, WrongSettings
from agent.recipes.journal import patience
from agent.recipes.settings import Settings, read

NO_TORCH = (
    "rackrate: recipe {name}: {python} has no torch ({error}); install it there (`pip install torch`),"
    " or run another Python by --env PATH=/its/bin:/usr/bin:/bin."
)
FINISHED, FAILED, INTERRUPTED = 0, 1, 130
_LOST = re.compile(r"gloo/transport|remote process exited|Connection (?:reset|closed) by peer")
"""In the errors of gloo and of NCCL where another rank has gone."""


def main(kind: type[Any], name: str, argv: Sequence[str] | None = None, *, work: str = "") -> int:
    """Runs recipe `name`: the training of `agent.recipes.NAME_task`, or `run` of the module `work`; the exit code."""
    try:
        settings = read(kind, name, argv)
        try:
            with patience("torch is being loaded", speaks=_first()):
                import torch
        except ImportError as error:
            print(NO_TORCH.format(name=name, python=sys.executable, error=error), file=sys.stderr)
            return FAILED
        if settings.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before the first GPU is touched
        if settings.threads:
            torch.set_num_threads(settings.threads)
        if not work:
            return _train(settings, name)
        importlib.import_module(work).run(settings)
        return FINISHED
    except KeyboardInterrupt:
        return INTERRUPTED
    except RecipeFault as fault:
        if _first() or not isinstance(fault, WrongSettings):  # which are the same on every rank
            rank = "" if _first() else f" (rank {os.environ['RANK']})"
            print(f"rackrate: recipe {name}{rank}: {fault}", file=sys.stderr)
        return fault.exit_code
    except RuntimeError as error:
        if os.environ.get("WORLD_SIZE", "1") == "1" or not _LOST.search(str(error)):
            raise
        print(f"rackrate: recipe {name} (rank {os.environ['RANK']}): {lost(error)}", file=sys.stderr)
        return FAILED


def lost(error: RuntimeError) -> str:
    """A sentence on a rank that no longer answers: its own log says why, and the stack of this one does not."""
    said = re.sub(r"^\[\S+\] ", "", str(error).split("\n")[0]).partition(". This is typically")[0].strip().rstrip(".")
    return f"another rank has ended or does not answer, and its own log says why ({said})."


def _train(settings: Settings, name: str) -> int:
    from agent.recipes.ranks import ranks
    from agent.recipes.train import Trainer

    module = importlib.import_module(f"agent.recipes.{name}_task")
    with ranks(settings.device) as team:
        with patience(f"the data are being looked at ({settings.data or 'made on the spot'})", speaks=team.first):
            task = module.make(settings)
        with patience("the model is being made, or read from a checkpoint", speaks=team.first):
            trainer = Trainer(settings, task, team, checkpoint_folder(settings))
        trainer.run()
    return FINISHED


def _first() -> bool:
    return os.environ.get("RANK", "0") == "0"


def checkpoint_folder(settings: Settings) -> Path:
    """Where the checkpoints are; a job has a folder of its own that outlives its attempts."""
    return Path(settings.checkpoint_dir or os.environ.get("RACKRATE_CHECKPOINT_DIR") or "checkpoints")


def different(settings: Settings, before: dict[str, object], names: Sequence[str]) -> list[str]:
    """Sentences on settings that a checkpoint was trained with and that are others now."""
    now = {one.name: getattr(settings, one.name) for one in fields(settings)}
    return [
        f"{name} was {before[name]!r} in the checkpoint and is {now[name]!r}: the curve goes on differently"
        for name in names
        if name in before and before[name] != now[name]
    ]
