"""Logs people already have, read as trace records. The samples' origin is in ``trace_samples/README.md``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sembase.errors import ConfigurationError, ContractError
from sembase.trace.load import load_trace, read_records, sniff_format
from sembase.trace.record import TraceRecord, parse_record, record_as_json

SAMPLES = Path(__file__).parent / "trace_samples"
SYSTEM = "Answer from the timetable."
QUESTION = "CONTEXT: The ferry leaves at ten.\n\nWhen does it leave?"
FORMATS = {
    "litellm.jsonl": "litellm",
    "otel_sdk.jsonl": "otel_genai",
    "openai.jsonl": "openai",
    "sglang.log": "sglang_log",
    "vllm.log": "vllm_log",
    "claude_log.jsonl": "claude_log",
    "langfuse.json": "langfuse",
}


def read(name: str) -> list[TraceRecord]:
    return list(read_records(SAMPLES / name))


@pytest.mark.parametrize("name", FORMATS)
def test_each_sample_is_recognised_and_becomes_records_and_columns(name: str) -> None:
    assert sniff_format(SAMPLES / name) == FORMATS[name]
    records = read(name)
    assert load_trace(SAMPLES / name).request_count == len(records) >= 2
    for record in records:
        assert parse_record(json.loads(json.dumps(record_as_json(record))), "again") == record


def test_one_conversation_has_the_same_blocks_in_every_log() -> None:
    litellm, otel, openai = read("litellm.jsonl"), read("otel_sdk.jsonl"), read("openai.jsonl")
    langfuse = read("langfuse.json")
    expected = [("system", SYSTEM), ("retrieved_context", "CONTEXT: The ferry leaves at ten.")]
    for record in (litellm[0], otel[0], *openai[:3], langfuse[0]):
        assert [(block.semantic_type, block.text) for block in record.blocks][:2] == expected
        assert record.prompt_text() == SYSTEM + QUESTION
        assert record.shows == "any_position"
        assert [block.content_hash for block in record.blocks] == [block.content_hash for block in litellm[0].blocks]
    for record in (litellm[1], otel[1], langfuse[1]):
        assert record.prompt_text() == SYSTEM + QUESTION + "At ten." + "And the last one?"
        assert record.blocks[:3] == litellm[0].blocks, "the second turn extends the first"


def test_what_a_log_reports_about_the_reply_is_kept() -> None:
    first = read("litellm.jsonl")[0]
    assert (first.output_tokens, first.observed_prefix_hit_tokens, first.observed_prefill_tokens) == (4, 16, 15)
    assert first.observed_total_latency_ms is not None
    assert first.observed_ttft_ms is None, "the reply was not streamed: its first token was not seen"
    span = read("otel_sdk.jsonl")[0]
    assert (span.output_tokens, span.observed_prefix_hit_tokens, span.model_name) == (4, None, "demo")
    assert 0 < (span.observed_total_latency_ms or 0) < 60_000
    generation = read("langfuse.json")[1]
    assert (generation.observed_ttft_ms, generation.observed_total_latency_ms) == (500.0, 1250.0)
    assert (generation.observed_prefix_hit_tokens, generation.observed_prefill_tokens) == (16, 15)
    served = read("sglang.log")[0]
    assert (served.observed_prefix_hit_tokens, served.output_tokens) == (16, 4)
    assert served.observed_total_latency_ms == 250.0


def test_openai_lines_of_all_kinds() -> None:
    plain, pair, batch, responses, completion = read("openai.jsonl")
    assert (pair.timestamp_ms, pair.session_id, pair.output_tokens) == (1_700_000_001_500.0, "s", 4)
    assert batch.request_id == "b-1"
    assert plain.timestamp_ms < batch.timestamp_ms
    assert [block.semantic_type for block in responses.blocks] == [
        "system",
        "retrieved_context",
        "retrieved_context",
        "assistant",
        "tool_output",
    ]
    assert (responses.observed_prefix_hit_tokens, responses.output_tokens) == (16, 4)
    assert completion.prompt_text() == SYSTEM + "\n\n" + QUESTION


def test_engine_logs_give_prompts_or_token_ids() -> None:
    for name in ("vllm.log", "sglang.log"):
        text, ids = read(name)
        assert "The ferry leaves at ten." in text.prompt_text()
        assert [block.token_count for block in ids.blocks] == [128, 11]
        assert ids.shows == "block"


@pytest.mark.parametrize("prompt", [r"'\x'", "'\0'"])
def test_a_vllm_prompt_that_is_no_python_text_is_named(prompt: str, tmp_path: Path) -> None:
    path = tmp_path / "v.log"
    path.write_text(f"DEBUG 11-16 08:40:23 [logger.py:1] Request c details: prompt: {prompt}, x\n", encoding="utf-8")
    with pytest.raises(ContractError, match=r"v\.log line 1: the prompt is not a Python text"):
        list(read_records(path))


def test_an_sglang_log_may_end_in_the_middle_of_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = (SAMPLES / "sglang.log").read_bytes()
    start = content.rindex(b"\n", 0, content.rindex(b'"event": "request.finished"')) + 1
    path = tmp_path / "s.log"
    path.write_bytes(content + content[start : start + 200])
    whole = read("sglang.log")
    assert [record.request_id for record in read_records(path)] == [record.request_id for record in whole]
    assert f"1 of {len(whole) + 1} lines left out" in capsys.readouterr().err


def test_a_conversation_of_the_responses_api_is_a_session(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    for given in ("conv_1", {"id": "conv_1"}):
        path.write_text(json.dumps({"model": "m", "input": "hello", "conversation": given, "user": "u"}) + "\n")
        (record,) = read_records(path)
        assert record.session_id == "conv_1"


def test_a_claude_session_follows_the_chain_of_messages() -> None:
    first, second, again = read("claude_log.jsonl")
    assert first.prompt_text() == QUESTION
    assert second.blocks[: len(first.blocks)] == first.blocks
    assert second.blocks[-1].text == "The ferry leaves at ten."
    assert second.blocks[-1].semantic_type == "user"
    assert again.prompt_text() == QUESTION, "the user went back to the first message"
    assert (first.observed_prefix_hit_tokens, first.observed_prefill_tokens, first.output_tokens) == (12_000, 904, 30)
    assert first.metadata["not_in_the_file"] == "system prompt and tools"


def test_otlp_spans_are_read_like_those_of_the_sdk(tmp_path: Path) -> None:
    spans = [json.loads(line) for line in (SAMPLES / "otel_sdk.jsonl").read_text().splitlines()]
    attributes = [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for key, value in spans[0]["attributes"].items()
        if isinstance(value, int | str)
    ]
    span = {"spanId": "a", "startTimeUnixNano": "1700000000000000000", "attributes": attributes}
    path = tmp_path / "otlp.json"
    path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}) + "\n")
    (found,) = read_records(path)
    assert found.blocks == read("otel_sdk.jsonl")[0].blocks
    assert (found.timestamp_ms, found.output_tokens) == (1.7e12, 4)


def test_logs_without_prompts_say_which_switch_is_missing(tmp_path: Path) -> None:
    vllm = [line for line in (SAMPLES / "vllm.log").read_text().splitlines() if "details" not in line]
    sglang = (SAMPLES / "sglang.log").read_text().replace('"text"', '"left_out"').replace('"input_ids"', '"cut"')
    span = json.loads((SAMPLES / "otel_sdk.jsonl").read_text().splitlines()[0])
    del span["attributes"]["gen_ai.input.messages"]
    for content, switch in (
        ("\n".join(vllm) + "\n", "VLLM_LOGGING_LEVEL=DEBUG"),
        (sglang, "--log-requests-level 3"),
        (json.dumps(span) + "\n", "CAPTURE_MESSAGE_CONTENT"),
    ):
        path = tmp_path / "log"
        path.write_text(content)
        with pytest.raises(ContractError, match=switch):
            list(read_records(path))


def test_an_unknown_file_is_refused_with_the_names_of_all_formats(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("nothing we know")
    with pytest.raises(ConfigurationError) as refused:
        list(read_records(tmp_path / "x"))
    assert all(name in str(refused.value) for name in FORMATS.values())


def test_hash_traces_say_that_they_show_prefixes_only(tmp_path: Path) -> None:
    mooncake = tmp_path / "m.jsonl"
    mooncake.write_text('{"timestamp": 5, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}\n' * 2)
    records = list(read_records(mooncake))
    assert [record.shows for record in records] == ["prefix", "prefix"]
    assert [block.token_count for block in records[0].blocks] == [512, 88]
    azure = tmp_path / "a.csv"
    azure.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n")
    (arrival,) = read_records(azure)
    assert (arrival.shows, arrival.prompt_tokens, arrival.output_tokens) == ("none", 4808, 10)
    session = {"block_size": 64, "requests": [{"t": 0.5, "in": 128, "out": 3, "hash_ids": [4, 9]}]}
    claude = tmp_path / "c.jsonl"
    claude.write_text(json.dumps(session) + "\n")
    (request,) = read_records(claude)
    assert (request.shows, request.tenant_id, request.timestamp_ms) == ("prefix", "session-0", 500.0)
    assert [block.block_id for block in request.blocks] == ["4", "9"]
