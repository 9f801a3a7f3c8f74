"""What a stream says, one event a line."""

from __future__ import annotations

import msgspec

from agent.wire.alerts import Alert
from agent.wire.base import Message
from agent.wire.jobs import Job, Notice
from agent.wire.node import NodeInfo, Sample


class NodeEvent(Message, kw_only=True, tag="node", tag_field="event"):
    """First in every stream, and again when identity or inventory change."""

    node: NodeInfo


class SampleEvent(Message, kw_only=True, tag="sample", tag_field="event"):
    sample: Sample


class AlertEvent(Message, kw_only=True, tag="alert", tag_field="event"):
    """An alert fired, changed or ended. Those active when the stream opens are sent after the node event."""

    alert: Alert


class JobEvent(Message, kw_only=True, tag="job", tag_field="event"):
    """A job was submitted, or changed. Those that have not ended are sent after the node event."""

    job: Job


class NoticeEvent(Message, kw_only=True, tag="notice", tag_field="event"):
    """The cloud will take this node away. One that is in force is sent after the node event."""

    notice: Notice


Event = NodeEvent | SampleEvent | AlertEvent | JobEvent | NoticeEvent
"""One line of `GET /v1/stream` (NDJSON, `application/x-ndjson`)."""

encoder = msgspec.json.Encoder()
event_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def encode_event(event: Event) -> bytes:
    """One NDJSON line, with its newline."""
    return encoder.encode(event) + b"\n"
