"""A decoder-only transformer that predicts the next byte of texts, or the next token of sequences made on the spot.

    python -m agent.recipes.language --data /data/books --steps 20000 --accumulate 4
    torchrun --nproc-per-node 8 -m agent.recipes.language --data /data/books --checkpoint-activations --parallel fsdp

Invariant: this file needs no torch: what it does is in language_task.py, language_model.py and the loop in train.py.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from agent.recipes.entry import main
from agent.recipes.settings import Settings, setting

KINDS = ("ddp", "fsdp", "tensor", "both")


@dataclass(frozen=True, kw_only=True)
class Language(Settings):
    """A decoder-only transformer, of a folder's texts or made sequences."""

    batch_size: int = setting(64, "sequences a step, of all ranks together", least=1)
    learning_rate: float = setting(1e-3, "at its highest (AdamW)", least=0)
    weight_decay: float = setting(0.1, "pull of the weights towards zero", least=0)
    data: str = setting("", "folder or s3:// prefix of .txt and .md files; none: sequences are made on the spot")
    context: int = setting(256, "tokens that it sees", least=2)
    layers: int = setting(6, "blocks", least=1)
    width: int = setting(384, "of each token's vector; a multiple of the heads", least=8)
    heads: int = setting(6, "of the attention", least=1)
    dropout: float = setting(0.0, "share of the values that are dropped in training", least=0)
    vocabulary: int = setting(64, "tokens of the sequences made on the spot; texts are bytes: 256", least=4)
    clip: float = setting(1.0, "longest gradient; longer ones are shortened; 0: never", least=0)
    checkpoint_activations: bool = setting(False, "compute each block twice instead of keeping it: less memory, slower")
    parallel: str = setting("ddp", "what ranks share beside the batch: nothing; each block; each matrix; both", choices=KINDS)
    tensor_ranks: int = setting(0, "ranks that share each matrix; the others share the batch; 0: all (tensor)", least=0)


if __name__ == "__main__":
    sys.exit(main(Language, "language"))
