"""The format of a file is recognised by the fields of its first line, however long that line is."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from sembase.errors import ConfigurationError, ContractError
from sembase.trace.files import read_head
from sembase.trace.load import read_records, sniff_format

LONG = "Answer from the timetable. " * 400
CHAT = [{"role": "user", "content": "When does it leave?"}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": f"find_{number}",
            "description": "Finds a span. " * 10,
            "parameters": {"type": "object", "properties": {"traceId": {}, "startTime": {}, "hash_ids": {}}},
        },
    }
    for number in range(60)
]
OPENAI: dict[str, dict[str, Any]] = {
    "instructions first": {"instructions": LONG, "input": "When?", "model": "m"},
    "timestamp and instructions first": {"timestamp": 1.7e9, "instructions": LONG, "input": "When?", "model": "m"},
    "tools before messages": {"tools": TOOLS, "messages": CHAT, "model": "m"},
    "tools before input": {"model": "m", "tools": TOOLS, "input": CHAT},
    "a long field in front": {"trace": "x" * 5000, "messages": CHAT},
    "a wrapped request": {"headers": {"a": LONG}, "request": {"tools": TOOLS, "messages": CHAT}, "response": {}},
    "a long message first": {"messages": [{"role": "system", "content": LONG}, *CHAT], "request_id": "r"},
    "other tools' ids": {"request_id": "r", "trace_id": "t", "model": "m", "messages": CHAT},
    "a body that nginx logged": {"remote_addr": "a", "request_body": json.dumps({"model": "m", "messages": CHAT})},
    "tools with the fields of other formats": {"model": "m", "tools": TOOLS[:1], "messages": CHAT, "block_size": 1},
}


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("case", OPENAI)
def test_openai_requests_of_any_order_are_recognised(case: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"log.jsonl{suffix}"
    content = (json.dumps(OPENAI[case]) + "\n").encode() * 2
    path.write_bytes(gzip.compress(content) if suffix else content)
    assert sniff_format(path) == "openai"
    first, _ = read_records(path)
    assert str(first.blocks[-1].text).startswith("When")


@pytest.mark.parametrize("indent", [None, 1])
def test_a_list_of_openai_requests_is_read(indent: int | None, tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text(json.dumps([{"model": "m", "messages": CHAT}, {"model": "m", "input": "When?"}], indent=indent))
    assert sniff_format(path) == "openai"
    assert len(list(read_records(path))) == 2
    path.write_text(json.dumps([3]))
    with pytest.raises(ContractError, match=r"log\.json request 0: expected a JSON object with a request"):
        list(read_records(path, "openai"))


def test_the_head_of_a_long_line_is_its_outline(tmp_path: Path) -> None:
    path = tmp_path / "log"
    line = json.dumps({"a": [["x" * 100] * 9] * 9, "b": {"c": {"d": {"e": {"f": 1}}}}})
    path.write_text(f'{line}\n{{"next": 1}}\n')
    assert json.loads(read_head(path)) == {"a": [["x" * 64] * 3] * 3, "b": {"c": {"d": {"e": {}}}}}
    path.write_text('{"a": 1}\n{"next": 1}\n{"cut of')
    assert read_head(path) == b'{"a": 1}\n{"next": 1}'
    path.write_text('{\n "a": 1}')
    assert read_head(path) == b'{\n "a": 1}', "a document of several lines"


def test_an_unknown_line_is_refused_with_its_fields_and_the_nearest_format(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({"padding": LONG, "conversation": CHAT, "model": "m", "response": {}}) + "\n")
    with pytest.raises(ConfigurationError) as refused:
        sniff_format(path)
    message = str(refused.value)
    assert "its first line has the fields padding, conversation, model, response" in message
    assert "the nearest format is openai (its fields: messages, prompt, input, request, body" in message
    assert "--format" in message
