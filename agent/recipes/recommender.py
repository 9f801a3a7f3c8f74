"""A recommender: how likely a person clicks an item, by two towers or a DLRM, from click logs that are streamed.

    python -m agent.recipes.recommender --data /data/clicks --model dlrm --steps 50000
    torchrun --nproc-per-node 8 -m agent.recipes.recommender --data /data/criteo --model dlrm --batch-size 65536

Invariant: this file needs no torch: what it does is in recommender_task.py, recommender_model.py and the loop in train.py.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from agent.recipes.entry import main
from agent.recipes.settings import Settings, setting


@dataclass(frozen=True, kw_only=True)
class Recommender(Settings):
    """A click predictor with sparse embeddings: two towers or a DLRM, of a folder's logs or made clicks."""

    batch_size: int = setting(1024, "rows a step, of all ranks together", least=1)
    learning_rate: float = setting(0.1, "at its highest (Adagrad)", least=0)
    weight_decay: float = setting(0.0, "pull of the dense weights towards zero; embeddings have none: they are sparse", least=0)
    data: str = setting("", "folder or s3:// prefix of click logs, .csv with a header or Criteo's .tsv; none: clicks are made on the spot")
    samples: int = setting(65536, "how many, where they are made on the spot", least=1)
    held_out: int = setting(4096, "rows that are kept apart and judged at the end; 0: none", least=0)
    model: str = setting("two_tower", "two_tower: a person's vector times an item's; dlrm: every field with every other",
                         choices=("two_tower", "dlrm"))
    width: int = setting(16, "numbers of each embedding", least=1)
    hidden: int = setting(64, "units of each dense layer", least=1)
    layers: int = setting(2, "dense layers of each tower, or of each end of the DLRM", least=1)
    buckets: int = setting(100_000, "rows of each field's table; values of a log are hashed into them", least=2)
    people: int = setting(500, "persons of the made clicks", least=2)
    items: int = setting(200, "items of the made clicks", least=2)
    block: int = setting(1 << 19, "bytes of a log that are read at once", least=64)
    mixed_blocks: int = setting(16, "blocks whose rows are mixed: the more, the better mixed, and the more memory", least=1)


if __name__ == "__main__":
    sys.exit(main(Recommender, "recommender"))
