"""Prompts in, labelled blocks out: whose labels are trusted, where a block begins, and when two blocks are equal."""

from sembase.segment.messages import Message
from sembase.segment.segments import Segment, segment_messages, segment_prompt

__all__ = [
    "Message",
    "Segment",
    "segment_messages",
    "segment_prompt",
]
