"""The past of the plots over a restart: one file in the state directory, replaced whole every ten minutes and at the end.

Invariant: the file is bounded (some 75 kB a GPU before it is packed) and never half of one; a torn or foreign file is no
history and no error, and writing it never delays a sample: it happens in a thread.
"""

from __future__ import annotations

import sys
import threading
import zlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from agent.errors import AgentFault
from agent.history import HistoryRing
from agent.history_level import Kept
from agent.private_files import sweep, write_private

NAME = "history.bin"
SAVE_SECONDS = 600.0
_MAGIC = b"RRH1"
LARGEST_BYTES = 64 << 20
"""A file that is larger, or would unpack to more, is none of ours."""
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[list[Kept]] = msgspec.msgpack.Decoder(list[Kept])


def pack(kept: Sequence[Kept]) -> bytes:
    """Magic, checksum, and the packed levels. Level 1 of zlib: 10 ms for eight GPUs."""
    body = zlib.compress(_encoder.encode(list(kept)), 1)
    return _MAGIC + zlib.crc32(body).to_bytes(4, "big") + body


def unpack(data: bytes) -> list[Kept]:
    """ValueError where it is torn or none of ours."""
    body = data[8:]
    if data[:4] != _MAGIC or zlib.crc32(body) != int.from_bytes(data[4:8], "big"):
        raise ValueError("not a history file, or a torn one")
    unpacker = zlib.decompressobj()
    try:
        plain = unpacker.decompress(body, LARGEST_BYTES)
        return _decoder.decode(plain)
    except (zlib.error, msgspec.DecodeError) as error:
        raise ValueError(str(error)) from None


def load(path: Path, ring: HistoryRing) -> bool:
    """Gives the ring what the file holds; False (and the ring as it was) where there is none that can be read."""
    try:
        if path.stat().st_size > LARGEST_BYTES:
            return False
        ring.restore(unpack(path.read_bytes()))
    except (OSError, ValueError, OverflowError):
        return False
    return True


class HistoryFile:
    """Keeps a ring in `path`; `save` may be called from the loop."""

    def __init__(self, path: Path, ring: HistoryRing) -> None:
        self._path = path
        self._ring = ring
        self._thread: threading.Thread | None = None
        self._failed = False
        sweep(path)

    def save(self) -> None:
        """Copies the ring now, and writes it in a thread; left out while the last write still runs."""
        if self._thread is not None and self._thread.is_alive():
            return
        kept = self._ring.kept()
        self._thread = threading.Thread(target=self._write, args=(kept,), name="history", daemon=True)
        self._thread.start()

    def close(self, timeout_seconds: float = 1.0) -> None:
        """The last write. A disk that hangs is not waited for."""
        if self._thread is not None:
            self._thread.join(timeout_seconds)
        self.save()
        if self._thread is not None:
            self._thread.join(timeout_seconds)

    def _write(self, kept: Sequence[Kept]) -> None:
        try:
            write_private(self._path, pack(kept))
        except AgentFault as fault:
            if not self._failed:
                print(f"rackrate-agent: the history of the plots is not kept: {fault}", file=sys.stderr, flush=True)
            self._failed = True
        else:
            self._failed = False
