"""One thread: so a training is as fast on a busy machine as on an idle one, and adds up in the same order."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(1)
