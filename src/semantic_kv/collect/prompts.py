"""Prompts from a file, or the built-in text: documents that the plan cuts into requests, or requests as they are."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from sembase.errors import ConfigurationError, ContractError
from sembase.segment import Message, parse_message
from sembase.trace.files import iter_json_lines, iter_lines, open_bytes
from sembase.trace.formats import FORMATS
from sembase.trace.load import read_records, sniff_format
from sembase.trace.locate import trace_files

_TEXT_FIELDS: Final = ("prompt", "text", "input", "context", "content")
_MAX_PROMPTS: Final = 10_000
_MAX_TEXT_BYTES: Final = 64 << 20


def read_prompts(path: Path) -> list[tuple[Message, ...]]:
    """``.jsonl`` lines with ``messages`` or one of prompt, text, input, context, content; or a recorded trace.

    Any other file is one text. Reads at most 10,000 prompts; packed files are unpacked.
    """
    if _is_trace(path):
        records = islice(read_records(path), _MAX_PROMPTS)
        return [(Message("user", record.prompt_text()),) for record in records]
    is_lines = path.name.removesuffix(".gz").removesuffix(".zst").endswith(".jsonl")
    prompts = list(_from_lines(path)) if is_lines else [_from_text(path)]
    if not prompts:
        raise ContractError(f"{path.name} contains no prompts")
    return prompts


def _is_trace(path: Path) -> bool:
    """A folder or a glob, or one file that a trace format with records recognises and that has no plain prompts."""
    files = trace_files(path)
    if files != (path,):
        return True
    lines = iter_lines(path)
    first = next(lines, (0, b""))[1]
    if not first.lstrip().startswith(b"{") or any(
        f'"{name}"'.encode() in first for name in ("messages", *_TEXT_FIELDS)
    ):
        return b'"semantic_kv.trace' in first
    try:
        return FORMATS.get(sniff_format(path)).records is not None
    except ConfigurationError:
        return False


def _from_lines(path: Path) -> Iterator[tuple[Message, ...]]:
    for number, (where, value) in enumerate(iter_json_lines(path)):
        if number == _MAX_PROMPTS:
            return
        if not isinstance(value, dict):
            raise ContractError(f"{where}: expected an object with 'messages' or 'prompt'")
        messages = value.get("messages")
        if isinstance(messages, list) and messages:
            yield tuple(parse_message(each, f"{where}, message {i}") for i, each in enumerate(messages))
            continue
        text = next((value[name] for name in _TEXT_FIELDS if isinstance(value.get(name), str)), None)
        if text is None or not text.strip():
            raise ContractError(f"{where}: needs 'messages' or a text in one of {', '.join(_TEXT_FIELDS)}")
        yield (Message("user", text),)


def _from_text(path: Path) -> tuple[Message, ...]:
    with open_bytes(path) as stream:
        content = stream.read(_MAX_TEXT_BYTES + 1)
    if len(content) > _MAX_TEXT_BYTES:
        raise ConfigurationError(f"{path.name} is larger than 64 MiB; use a part of it")
    text = content.decode("utf-8", "replace")
    if not text.strip():
        raise ContractError(f"{path.name} contains no text")
    return (Message("user", text),)


_SUBJECTS: Final = (
    "ferry",
    "archive",
    "signal",
    "licence",
    "garden",
    "ledger",
    "harbour",
    "engine",
    "letter",
    "bridge",
)
_DEEDS: Final = ("carries", "records", "measures", "repairs", "delays", "announces", "replaces", "describes", "returns")
_OBJECTS: Final = (
    "passengers",
    "tickets",
    "weather",
    "reports",
    "cables",
    "payments",
    "timetables",
    "pictures",
    "maps",
)
# Enough text to vary token counts; its meaning does not affect latency.
BUILT_IN_TEXT: Final[list[tuple[Message, ...]]] = [
    (
        Message(
            "user",
            " ".join(
                f"The {subject} {deed} {thing} number {17 * i + 5 * j + k}."
                for i, subject in enumerate(_SUBJECTS)
                for j, deed in enumerate(_DEEDS)
                for k, thing in enumerate(_OBJECTS)
            ),
        ),
    )
]
