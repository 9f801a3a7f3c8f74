"""Two models of a click: two towers, and DLRM.

Invariant: gradients of the embeddings are sparse: a step touches the rows of its batch alone, however large the tables are.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

START = 0.05
"""Spread of the embeddings before the first step."""


class Tables(nn.Module):
    """One embedding a field, in one table: field f, bucket b is row `f * buckets + b`."""

    def __init__(self, fields: int, buckets: int, width: int) -> None:
        super().__init__()
        self.rows = nn.Embedding(fields * buckets, width, sparse=True)
        nn.init.normal_(self.rows.weight, std=START)
        self.register_buffer("first", torch.arange(fields) * buckets, persistent=False)

    def forward(self, sparse: Tensor) -> Tensor:
        """(samples, fields) of buckets -> (samples, fields, width)."""
        return self.rows(sparse + self.first)


def dense_layers(inputs: int, hidden: int, layers: int, outputs: int) -> nn.Sequential:
    """`layers` of `hidden` units with ReLU, then `outputs`."""
    parts: list[nn.Module] = []
    for size in [inputs, *[hidden] * (layers - 1)]:
        parts += [nn.Linear(size, hidden), nn.ReLU()]
    return nn.Sequential(*parts, nn.Linear(hidden, outputs))


class TwoTower(nn.Module):
    """A tower for the person (with the dense fields), one for the item; the logit is the product of their ends.

    A tower adds to its embeddings, so that it begins as a factorisation and learns at once (He et al. 2016). Covington,
    Adams, Sargin: Deep Neural Networks for YouTube Recommendations (2016), its retrieval model.
    """

    def __init__(self, person: Sequence[int], item: Sequence[int], dense: int, buckets: int, width: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.person, self.item = list(person), list(item)
        self.tables = Tables(len(person) + len(item), buckets, width)
        self.person_tower = dense_layers(len(person) * width + dense, hidden, layers, width)
        self.item_tower = dense_layers(len(item) * width, hidden, layers, width)
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, sparse: Tensor, dense: Tensor) -> Tensor:
        """(samples, fields), (samples, dense fields) -> logits (samples,)."""
        found = self.tables(sparse)
        persons, items = found[:, self.person], found[:, self.item]
        person = persons.sum(1) + self.person_tower(torch.cat([persons.flatten(1), dense], 1))
        item = items.sum(1) + self.item_tower(items.flatten(1))
        return (person * item).sum(1) + self.bias


class Dlrm(nn.Module):
    """Dense fields go through a bottom; it and every embedding meet in pairs; the products and the bottom go through a top.

    Naumov et al.: Deep Learning Recommendation Model for Personalization and Recommendation Systems (2019).
    """

    def __init__(self, fields: int, dense: int, buckets: int, width: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.tables = Tables(fields, buckets, width)
        self.bottom = dense_layers(dense, hidden, layers, width) if dense else None
        vectors = fields + (1 if dense else 0)
        pairs = torch.triu_indices(vectors, vectors, 1)
        self.register_buffer("left", pairs[0], persistent=False)
        self.register_buffer("right", pairs[1], persistent=False)
        self.top = dense_layers(pairs.shape[1] + (width if dense else 0), hidden, layers, 1)

    def forward(self, sparse: Tensor, dense: Tensor) -> Tensor:
        """(samples, fields), (samples, dense fields) -> logits (samples,)."""
        vectors, ends = self.tables(sparse), []
        if self.bottom is not None:
            bottom = self.bottom(dense)
            vectors, ends = torch.cat([bottom[:, None].to(vectors.dtype), vectors], 1), [bottom]
        met = (vectors[:, self.left] * vectors[:, self.right]).sum(2)
        return self.top(torch.cat([met, *ends], 1)).squeeze(1)
