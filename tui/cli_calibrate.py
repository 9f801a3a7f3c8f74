"""The options of `calibrate`, and of the words that may stand behind it: `list`, `show`, `compare`, `add`, `export`, `import`.

Invariant: `calibrate WORDS` measures the nodes that the words select; only these words, first behind it, mean something else.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

ACTIONS = ("list", "show", "compare", "add", "export", "import")
EPILOG = """runs the recipe `calibrate` as a job on each node: matrix products, memory, the way to the GPU, all-reduce, the disk, and each
recipe's samples a second, in rounds; the median counts, and half of what lies between the ends is the spread.

  rackrate calibrate gpu-01                             its GPUs all together; Ctrl+C cancels the job
  rackrate calibrate gpu:H100 --gpus 1 --set steps=50   one GPU of each node with an H100
  rackrate calibrate gpu-01 --recipes language --set changes=language.width=768,language.layers=12
  rackrate calibrate list                               what was measured; also show ID, compare [A B], export, import FILE
  rackrate calibrate add slurm-4711.out --node gpu-07   what `python -m agent.recipes.calibrate` printed, wherever it ran

`rackrate plan --recipe` and `rackrate run --recipe --dry-run` price by it.
exit codes: 0 measured, 1 nothing was, 3 no node was reached, 4 some nodes were not; compare: 1 they differ
"""
Add = Callable[..., argparse.ArgumentParser]


def calibrate_words(argv: Sequence[str]) -> list[str]:
    """`calibrate list ...` as `calibrate-list ...`, which is how the parser knows it."""
    words = list(argv)
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in ("--config", "--max-kbps") else 1
    if words[at : at + 1] == ["calibrate"] and words[at + 1 : at + 2] and words[at + 1] in ACTIONS:
        words[at : at + 2] = [f"calibrate-{words[at + 1]}"]
    return words


def add_calibrate_commands(commands: Any, command: Add, json: Callable[[argparse.ArgumentParser], None]) -> None:
    """Adds them to `commands`; `command` and `json` are those of the other commands."""
    run = command(commands, "calibrate", "calibrate:calibrate", "measure nodes, so that training has a price")
    run.epilog, run.formatter_class = EPILOG, argparse.RawDescriptionHelpFormatter
    run.add_argument("query", nargs="*", metavar="QUERY", help="nodes, as in `rackrate nodes`: a name, gpu:H100, tag:team=red")
    run.add_argument("--all", action="store_true", help="all nodes, without a query")
    run.add_argument("--recipes", metavar="A,B", help="whose speed is measured (default: vision,language,recommender; none)")
    run.add_argument("--gpus", type=_count, metavar="N", help="of each node (default: all that it has)")
    run.add_argument("--set", action="append", default=[], metavar="K=V", help="a setting; list: shows them; may be repeated")
    run.add_argument("--env", action="append", default=[], metavar="K=V", help="for the job, such as PATH of a Python with torch")
    run.add_argument("--project", metavar="NAME", help="whom its cost belongs to")
    run.add_argument("--time-limit", default="1h", metavar="TIME", help="of the job on each node (default 1h)")
    json(run)
    listing = _action(commands, command, "list", "list what was measured")
    listing.add_argument("word", nargs="?", metavar="NODE|TYPE", help="only of this node, instance type or host")
    show = _action(commands, command, "show", "one calibration with all its figures")
    show.add_argument("which", metavar="ID|NODE|TYPE", help="of a node or type the newest")
    compare = _action(commands, command, "compare", "two calibrations: do they agree within their spread?")
    compare.add_argument("which", nargs="*", metavar="ID|NODE|TYPE", help="two; one: its two newest; none: the two newest of one kind")
    add = _action(commands, command, "add", "keep what the recipe printed elsewhere")
    add.add_argument("file", metavar="FILE", help="the output of `python -m agent.recipes.calibrate`, such as a log of Slurm")
    add.add_argument("--node", metavar="NAME", help="what to call the machine (default: its host name)")
    add.add_argument("--cloud", metavar="CLOUD")
    add.add_argument("--region", metavar="R")
    add.add_argument("--type", metavar="TYPE", help="its instance type, such as p5.48xlarge")
    out = _action(commands, command, "export", "all that was measured, as JSON lines")
    out.add_argument("--out", metavar="FILE", help="default: stdout")
    take = _action(commands, command, "import", "take in what `calibrate export` wrote")
    take.add_argument("file", metavar="FILE")
    for parser in (listing, show, compare, add, take):
        json(parser)


def add_recipe_options(plan: argparse.ArgumentParser) -> None:
    """What `plan` takes beside `--recipe`."""
    group = plan.add_argument_group("a recipe", "what training takes and costs, by calibrations; see `rackrate calibrate --help`")
    group.add_argument("--recipe", metavar="NAME", help="vision, language or recommender; with a file: its measured speed")
    group.add_argument("--set", action="append", default=[], metavar="K=V", help="a setting of the recipe; may be repeated")
    group.add_argument("--steps", metavar="N", help="how much is trained (default: the recipe's steps)")
    group.add_argument("--epochs", metavar="N", help="the same in epochs")
    group.add_argument("--samples", metavar="N", help="the same in samples, such as 10M")
    group.add_argument("--epoch-samples", metavar="N", help="how many samples the data have")
    group.add_argument("--deadline", metavar="TIME", help="only what is expected to be done by then, such as 8h")
    group.add_argument("--gpus", type=_some, metavar="N", help="use so many of each node (default: all)")
    group.add_argument("--buy", action="append", default=[], metavar="OPTION", help="on_demand (default), spot, ...; may be repeated")
    group.add_argument("--cloud", action="append", default=[], metavar="CLOUD", help="only there; may be repeated")
    group.add_argument("--gpu", action="append", default=[], metavar="MODEL", help="only types with such a GPU; may be repeated")


def _some(text: str) -> int:
    if not _count(text):
        raise argparse.ArgumentTypeError("it must be at least 1")
    return int(text)


def _action(commands: Any, command: Add, word: str, help: str) -> argparse.ArgumentParser:
    parser = command(commands, f"calibrate-{word}", f"calibrate_kept:{word}_", help)
    parser.prog = f"rackrate calibrate {word}"
    return parser


def _count(text: str) -> int:
    if not text.isdigit() or int(text) > 1024:
        raise argparse.ArgumentTypeError(f"{text} is no number of GPUs from 0 to 1024")
    return int(text)
