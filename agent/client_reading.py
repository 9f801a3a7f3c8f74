"""What an agent says, decoded: also where the agent is newer than this program.

Invariant: what is newer and can be left out is left out: fields, and events of a kind that is not known (these are counted).
What cannot be is refused with a sentence that names both versions, never as a wrong URL: a word that is not known within a
message that is (a usage row of a new kind left out would be money lost), and a wire whose fields mean something else.
"""

from __future__ import annotations

import contextlib
from typing import TypeVar, get_args

import msgspec

from agent import version, wire
from agent.client_errors import ClientError, NotAnAgent, WireTooNew

LONGEST_EVENT_BYTES = 16 * 1024 * 1024

T = TypeVar("T")


class _Tag(msgspec.Struct):
    event: str


class _Version(msgspec.Struct):
    version: int = 0


_tag_decoder = msgspec.json.Decoder(_Tag)
_version_decoder = msgspec.json.Decoder(_Version)
_KNOWN_EVENTS = frozenset(one.__struct_config__.tag for one in get_args(wire.Event))


class Reader:
    """Decodes what one agent answers. `agent`: its version, as soon as it has told."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.agent: str | None = None
        self.left_out = 0
        """Events of a kind that this program does not know."""

    def answer(self, body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
        """A whole answer. WireTooNew, NotAnAgent."""
        try:
            return self._checked(decoder.decode(body))
        except msgspec.DecodeError as error:
            raise self._undecodable(body, error) from None

    def lines(self) -> Lines:
        """For a new stream."""
        return Lines(self)

    def events(self, block: bytes) -> list[wire.Event]:
        """Whole lines. WireTooNew, NotAnAgent."""
        try:
            events = wire.event_decoder.decode_lines(block)
        except msgspec.DecodeError:
            found = [self._event(line) for line in block.split(b"\n") if line.strip()]
            events = [event for event in found if event is not None]
        for event in events:
            if isinstance(event, wire.NodeEvent):
                self._checked(event.node)
        return events

    def endless(self) -> ClientError:
        return NotAnAgent(f"{self._url} answers, but is not a Rackrate agent (an endless line); check the URL")

    def _event(self, line: bytes) -> wire.Event | None:
        """None for an event of a kind that is newer than this program."""
        try:
            return wire.event_decoder.decode(line)
        except msgspec.DecodeError as error:
            with contextlib.suppress(msgspec.DecodeError):
                if _tag_decoder.decode(line).event not in _KNOWN_EVENTS:
                    self.left_out += 1
                    return None
            raise self._undecodable(line, error) from None

    def _checked(self, message: T) -> T:
        self.agent = getattr(message, "agent_version", None) or self.agent
        speaks = getattr(message, "version", 0)
        if speaks > wire.WIRE_VERSION:
            raise self._too_new(f"speaks version {speaks} of the wire, and this program ({_ours()}) only {wire.WIRE_VERSION}")
        return message

    def _undecodable(self, body: bytes, error: Exception) -> ClientError:
        """A message that does not fit: of a newer version, or not ours at all."""
        with contextlib.suppress(msgspec.DecodeError):
            self._checked(_version_decoder.decode(body))
        if isinstance(error, msgspec.ValidationError) and "Invalid enum value" in str(error):
            return self._too_new(f"uses a word that this program ({_ours()}) does not know: {error}")
        return NotAnAgent(f"{self._url} answers, but is not a Rackrate agent ({error}); check the URL")

    def _too_new(self, what: str) -> WireTooNew:
        return WireTooNew(f"the agent at {self._url} ({version.named(self.agent)}) {what}; update this program")


def _ours() -> str:
    return version.named(version.installed())


class Lines:
    """Cuts chunks into lines; what a chunk leaves unfinished waits for the next."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._rest = b""

    def feed(self, chunk: bytes) -> list[wire.Event]:
        end = chunk.rfind(b"\n") + 1
        if not end:
            self._keep(self._rest + chunk)
            return []
        block = self._rest + chunk[:end] if self._rest else chunk[:end]
        self._keep(chunk[end:])
        return self._reader.events(block)

    def _keep(self, rest: bytes) -> None:
        if len(rest) > LONGEST_EVENT_BYTES:
            raise self._reader.endless()
        self._rest = rest
