"""A language training that takes a second on one core, shared by ranks in every way.

Rank 0 writes what came of an experiment to FOLDER/EXPERIMENT.json (small_ranks.py starts them).
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from agent.recipes import language_task, parallel
from agent.recipes.calibrate import Calibrate
from agent.recipes.calibrate_measure import recipe_speed
from agent.recipes.faults import RecipeFault
from agent.recipes.language import Language
from agent.recipes.ranks import Ranks, ranks
from agent.recipes.train import Trainer
from tests.agent.recipes import small
from tests.agent.recipes.small import ALONE, Watched

SETTINGS = Language(
    batch_size=8, steps=12, warmup_steps=3, learning_rate=0.03, context=16, layers=2, width=16, heads=4, vocabulary=16,
    samples=256, held_out=13, checkpoint_every=4, device="cpu", tensorboard="off", deterministic=True, clip=0.5,
)  # fmt: skip
STOP_AT = 6
COPIES_STOP_AT = 8


def begun(folder: Path, journal: Watched | None = None, team: Ranks = ALONE, **changes: Any) -> Trainer:
    settings = replace(SETTINGS, **changes)
    return Trainer(settings, language_task.make(settings), team, folder, journal or Watched())


def trained(folder: Path, journal: Watched | None = None, team: Ranks = ALONE, **changes: Any) -> dict[str, Any]:
    """Losses, accuracy, and what was said."""
    journal = journal or Watched()
    begun(folder, journal, team, **changes).run()
    ends = [one for one in journal.lines if one.get("event") == "end"]
    return {"losses": journal.losses, "accuracy": ends[0]["accuracy"] if ends else None, "said": journal.err.getvalue(),
            "start": journal.event("start")}  # fmt: skip


def stops(team: Ranks, rank: int = 1) -> Watched:
    """A journal with which that rank alone is told to stop after a step."""
    return Watched(lambda step: os.kill(os.getpid(), signal.SIGTERM) if team.rank == rank and step == STOP_AT else None)


# Experiments of two ranks


PIECES: dict[str, Any] = {"parallel": "fsdp", "accumulate": 2, "checkpoint_activations": True}


def kinds(folder: Path, team: Ranks) -> dict[str, Any]:
    """Whole trainings."""
    return {
        "fsdp in pieces": trained(folder / "pieces", team=team, **PIECES),
        "tensor": trained(folder / "tensor", team=team, parallel="tensor"),
        "both": trained(folder / "both", team=team, parallel="both", tensor_ranks=2),
    }


def resumes(folder: Path, team: Ranks) -> dict[str, Any]:
    """Stopped as one kind, told to the second rank alone, and gone on as another."""
    how = {"fsdp": PIECES, "tensor": {"parallel": "tensor"}, "ddp": {}}
    found = {one: trained(folder / f"stopped-{one}", stops(team), team, **changes) for one, changes in how.items()}
    for before, after in (("fsdp", "fsdp"), ("tensor", "fsdp"), ("ddp", "fsdp"), ("fsdp", "ddp"), ("alone", "fsdp")):
        name = f"{before}-{after}"
        if team.first:
            shutil.copytree(folder / f"stopped-{before}", folder / name)
        team.share(None)
        found[name] = trained(folder / name, team=team, **how[after])
    return found


def sentences(folder: Path, team: Ranks) -> dict[str, Any]:
    """Of settings and folders that cannot be meant."""
    found: dict[str, Any] = {}
    cases: dict[str, dict[str, Any]] = {
        "heads": {"parallel": "tensor", "heads": 1}, "not asked": {"parallel": "both"}, "odd": {"parallel": "both", "tensor_ranks": 3},
        "too few": {"parallel": "tensor", "tensor_ranks": 1}, "for nothing": {"parallel": "fsdp", "tensor_ranks": 2},
        "another model": {"parallel": "fsdp", "layers": 1},
    }  # fmt: skip
    trained(folder / "kept", team=team, parallel="fsdp", steps=2, held_out=0)
    for name, changes in cases.items():
        found[name] = fault(lambda changes=changes: begun(folder / "kept", team=team, **changes))
    own = folder / f"of-rank-{team.rank}"
    found["not shared"] = fault(lambda: begun(own, team=team, parallel="fsdp"))
    said = Watched()
    begun(own, said, team)
    found["first alone"] = said.err.getvalue()
    found["fp16"] = fault(lambda: parallel.precision_fits("both", "fp16"))
    return found


def fault(does: Callable[[], object]) -> str:
    try:
        does()
    except RecipeFault as wrong:
        return str(wrong)
    return "none"


def speeds(folder: Path, team: Ranks) -> dict[str, Any]:
    """What calibrate tells of ranks that share the model; nothing is kept, so they need no folder together."""
    found = {}
    for kind in ("fsdp", "tensor"):
        settings = Calibrate(recipes="language", steps=2, batch_size=4, device="cpu", deterministic=True)
        flags = [f"--parallel={kind}", "--width=16", "--heads=2", "--layers=1", "--context=8", "--vocabulary=16"]
        measured = recipe_speed("language", settings, team, flags)
        speed = measured.once()
        found[kind] = {"speed": speed, **measured.about}
    return found


def overflow(folder: Path, team: Ranks) -> dict[str, Any]:
    """With fp16's scale: one rank's shard of one gradient is infinite, so no rank may step, and the scale is halved on all."""
    trainer = begun(folder / "overflow", team=team, parallel="fsdp")
    trainer.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
    batch = next(iter(trainer._batches())).batch
    before = [one.detach().to_local().clone() for one in trainer.plain.parameters()]
    infinite = trainer.plain.blocks[1].out.weight.register_post_accumulate_grad_hook(_spoil(team))
    trainer.train(batch)
    infinite.remove()
    same = all(torch.equal(old, one.detach().to_local()) for old, one in zip(before, trainer.plain.parameters(), strict=True))
    scale = trainer.scaler.get_scale()
    trainer.train(batch)
    moved = any(not torch.equal(old, one.detach().to_local()) for old, one in zip(before, trainer.plain.parameters(), strict=True))
    trainer.saved.wait()
    return {"found": team.all([same, scale, moved])}


def full(folder: Path, team: Ranks) -> dict[str, Any]:
    """The second rank's disk is full: both say so, and nothing half written is left; with room it goes on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if team.rank == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    told = fault(lambda: trained(folder / "full", team=team, parallel="fsdp", checkpoint_every=1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    left = sorted(path.name for path in (folder / "full").iterdir())
    return {"told": team.all(told), "left": left, "goes on": trained(folder / "full", team=team, parallel="fsdp", steps=2)["losses"]}


def _spoil(team: Ranks) -> Callable[[torch.Tensor], None]:
    def spoil(weight: Any) -> None:
        if team.rank == 1:
            weight.grad.to_local().fill_(float("inf"))

    return spoil


def copies(folder: Path, team: Ranks) -> None:
    """The vision recipe, which each rank has a copy of."""
    (folder / "copies").mkdir(exist_ok=True)
    small.as_rank(folder / "copies", team, COPIES_STOP_AT)


def paces(folder: Path, team: Ranks) -> dict[str, float]:
    """CPU seconds a step of a model that is large enough to be more than calls."""
    size: dict[str, Any] = {"width": 256, "layers": 4, "context": 64, "batch_size": 16, "checkpoint_every": 0, "deterministic": False}
    found = {}
    for kind in ("ddp", "fsdp", "tensor"):
        trainer = begun(folder / kind, team=team, parallel=kind, **size)
        batch = next(iter(trainer._batches())).batch
        seconds = []
        for _ in range(9):
            began = time.process_time()
            trainer.train(batch)
            seconds.append(time.process_time() - began)
        found[kind] = statistics.median(seconds[2:])
        trainer.model = trainer.plain
    return found


def dies(folder: Path, team: Ranks) -> None:
    """Of four ranks one kills itself with -9 after a step; the last line stands in a file, for no rank comes to an end."""

    def after(step: int) -> None:
        if team.first:  # which is killed as soon as the other one is gone
            (folder / "losses.part").write_text(json.dumps(journal.losses))
            (folder / "losses.part").replace(folder / "losses.json")
        if team.rank == 2 and step == STOP_AT:
            while not (folder / "killed" / "step-000000004").is_dir():  # it is written beside the steps
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)

    journal = Watched(after)
    trained(folder / "killed", journal, team, parallel="both", tensor_ranks=2, accumulate=2)


def experiments(place: Path, names: Sequence[str]) -> None:
    """This rank's part of each; the first rank writes what came of it."""
    with ranks("cpu") as together:
        for name in names:
            found = globals()[name](place, together)
            if together.first:
                (place / f"{name}.json").write_text(json.dumps(found))
