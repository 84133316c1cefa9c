"""Prompts to labelled blocks: who may label what, where a block begins, and what makes two blocks equal."""

from sembase.segment.messages import Message, parse_message
from sembase.segment.segments import Segment, segment_messages, segment_prompt
from sembase.segment.to_record import record_from_messages, record_from_prompt

__all__ = [
    "Message",
    "Segment",
    "parse_message",
    "record_from_messages",
    "record_from_prompt",
    "segment_messages",
    "segment_prompt",
]
