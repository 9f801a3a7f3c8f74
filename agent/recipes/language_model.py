"""A decoder-only transformer, small enough to read: pre-norm blocks, learned positions, tied input and output.

Invariant: no token sees a later one, and no sequence another. Vaswani et al., Attention Is All You Need, 2017; Radford et
al., Language Models are Unsupervised Multitask Learners, 2019, section 2.3.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    """Attention, then two layers for each token; each beside a shortcut."""

    columns, rows = ("queries_keys_values", "layers.0"), ("out", "layers.2")
    """Matrices that tensor ranks share by their outputs, and by their inputs: one sum over the ranks a pair."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.head, self.dropout = width // heads, dropout
        self.before_attention, self.before_layers = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout))

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.out(self._attended(self.before_attention(tokens)))
        return tokens + self.layers(self.before_layers(tokens))

    def _attended(self, tokens: Tensor) -> Tensor:
        """Head by head, so that a rank that has some of the rows of `queries_keys_values` has whole heads."""
        samples, length, _ = tokens.shape
        parts = self.queries_keys_values(tokens).view(samples, length, -1, 3, self.head)
        queries, keys, values = parts.permute(3, 0, 2, 1, 4)
        dropout = self.dropout if self.training else 0.0
        found = functional.scaled_dot_product_attention(queries, keys, values, dropout_p=dropout, is_causal=True)
        return found.transpose(1, 2).reshape(samples, length, -1)


class Decoder(nn.Module):
    """(samples, length) of token numbers -> (samples, length, vocabulary)."""

    def __init__(self, vocabulary: int, context: int, layers: int, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.checkpoints = False
        """Whether the blocks' values are computed again for the gradients."""
        for name, one in self.named_parameters():
            if one.ndim > 1:
                deep = (2 * layers) ** -0.5 if name.endswith(("out.weight", "layers.2.weight")) else 1.0
                nn.init.normal_(one, std=0.02 * deep)

    def forward(self, numbers: Tensor) -> Tensor:
        values = self.tokens(numbers) + self.positions(torch.arange(numbers.shape[1], device=numbers.device))
        for block in self.blocks:
            again = self.checkpoints and self.training and torch.is_grad_enabled()
            values = checkpoint(block, values, use_reentrant=False) if again else block(values)
        return functional.linear(self.norm(values), self.tokens.weight)
