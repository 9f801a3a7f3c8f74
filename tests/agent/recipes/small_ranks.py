"""Ranks without a launcher: forks of one process, which has imported torch once.

    python -m tests.agent.recipes.small_ranks COUNT FOLDER EXPERIMENT...

As under torchrun: where one of them ends badly the others are ended, and the exit code is that of the first, 128 + N for signal N.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from pathlib import Path

import torch

from tests.agent.recipes import small_language


def run(count: int, folder: Path, experiments: list[str]) -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    children = {_forked(rank, count, port, folder, experiments) for rank in range(count)}
    code = 0
    while children:
        child, status = os.wait()
        children.discard(child)
        if status and not code:
            code = os.waitstatus_to_exitcode(status)
            for other in children:
                os.kill(other, signal.SIGKILL)
    return code if code >= 0 else 128 - code


def _forked(rank: int, count: int, port: int, folder: Path, experiments: list[str]) -> int:
    child = os.fork()
    if child:
        return child
    os.environ |= {
        "RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
    code = 1
    try:
        small_language.experiments(folder, experiments)
        code = 0
    except BaseException:  # noqa: BLE001 - told, and then the process ends whatever it was
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(run(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
