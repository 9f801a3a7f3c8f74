"""Training programs that are worth running as they are and worth copying; run with `python -m agent.recipes.NAME`.

Invariant: nothing outside imports this package, and it imports nothing of ours: `rackrate run --recipe` sends it along as
it is, to a Python that has torch and nothing of Rackrate. What a recipe can be told stands in NAME.toml beside it.

Ranks are processes (torchrun and DistributedDataParallel), also on one node: DataParallel is one process, bound by one
interpreter lock, and copies the model to every GPU at each step.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 11):  # the node's own Python may be any
    raise SystemExit(f"rackrate: recipes need Python 3.11 or later, and {sys.executable} is {sys.version.split()[0]}.")
