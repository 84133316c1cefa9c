"""Token ids from a tokenizer's files: pieces equal the whole, templates render as transformers renders them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, trainers

from sembase.errors import ConfigurationError
from semgate.http.request_body import read_request
from semgate.tokens.encoder import Encoder
from semgate.tokens.local import LocalTokens, given_tokens
from semgate.tokens.template import ChatTemplate, TemplateRefusal, open_template

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CORPUS = [
    "the quick brown fox jumps over the lazy dog\n",
    "def f(x):\n    return x ** 2\n",
    "user system assistant",
] * 20


def write_model(folder: Path, **changes: Any) -> Path:
    """A byte-level BPE of a few merges, as the models of today have it."""
    model = tokenizers.Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|im_start|>", "<|im_end|>", "<|im_"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    model.train_from_iterator(CORPUS, trainer)
    spec = json.loads(model.to_str()) | changes
    (folder / "tokenizer.json").write_text(json.dumps(spec))
    config = {"bos_token": {"content": "<|im_start|>"}, "eos_token": "<|im_end|>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


def tokens_of(source: LocalTokens, path: str, body: dict[str, Any]) -> list[int] | None:
    raw = json.dumps(body).encode()
    found = asyncio.run(source.tokens_of(read_request(path, (), raw), raw))
    return None if found is None else found.tolist()


@given(
    st.lists(
        st.sampled_from(["<|im_start|>", "<|im_end|>", "<|im_", "|>", " ", "\n", "the", "fox", "é", "🙂", "  x"]),
        max_size=30,
    )
)
def test_pieces_between_special_tokens_encode_as_the_whole(model: Path, words: list[str]) -> None:
    encoder = Encoder(model / "tokenizer.json", remembered_bytes=2_000)
    assert encoder.encodes_pieces
    text = "".join(words)
    whole = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json")).encode(text, add_special_tokens=False).ids
    for _ in range(2):
        assert encoder.encode(text, add_special_tokens=False).tolist() == whole


def test_what_is_remembered_is_bounded(model: Path) -> None:
    encoder = Encoder(model / "tokenizer.json", remembered_bytes=3_000)
    for number in range(200):
        encoder.encode(f"<|im_start|>a text of number {number}<|im_end|>", add_special_tokens=False)
        assert sum(tokens.nbytes + 250 for tokens in encoder._remembered.values()) <= 3_000
    assert len(encoder._remembered) > 3


def test_a_tokenizer_that_looks_around_special_tokens_is_not_cut(tmp_path: Path) -> None:
    write_model(tmp_path)
    spec = json.loads((tmp_path / "tokenizer.json").read_text())
    for added in spec["added_tokens"]:
        added["rstrip"] = True
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    encoder = Encoder(tmp_path / "tokenizer.json")
    assert not encoder.encodes_pieces
    whole = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = "<|im_start|>   spaces that belong to the token"
    assert encoder.encode(text, add_special_tokens=False).tolist() == whole.encode(text, add_special_tokens=False).ids


def test_chat_and_completion_requests(model: Path) -> None:
    source = LocalTokens(model)
    whole = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))
    messages = [{"role": "user", "content": "the fox"}, {"role": "assistant", "content": "the dog"}]
    text = "<|im_start|>user\nthe fox<|im_end|>\n<|im_start|>assistant\nthe dog<|im_end|>\n"
    chat = {"model": "m", "messages": messages}
    assert tokens_of(source, CHAT, chat) == whole.encode(text + "<|im_start|>assistant\n").ids
    assert tokens_of(source, CHAT, {**chat, "add_generation_prompt": False}) == whole.encode(text).ids
    long = [{"role": "user", "content": [{"type": "text", "text": "fox " * 800}, {"type": "text", "text": "dog"}]}]
    rendered = "<|im_start|>user\n" + "fox " * 800 + "\ndog<|im_end|>\n<|im_start|>assistant\n"
    assert tokens_of(source, CHAT, {"messages": long}) == whole.encode(rendered).ids
    assert tokens_of(source, COMPLETIONS, {"prompt": "the lazy dog"}) == whole.encode("the lazy dog").ids
    assert tokens_of(source, COMPLETIONS, {"prompt": [5, 6, 7]}) == [5, 6, 7]
    assert source.counters.encoded == 4
    asyncio.run(source.close())


def test_tools_are_part_of_the_prompt_unless_the_client_forbids_them(model: Path) -> None:
    source = LocalTokens(model)
    whole = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))
    body = {"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function", "n": "<é>"}]}
    rendered = '<|im_start|>user\nx<|im_end|>\n[{"type": "function", "n": "<é>"}]<|im_start|>assistant\n'
    assert tokens_of(source, CHAT, body) == whole.encode(rendered).ids
    without = "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n"
    assert tokens_of(source, CHAT, {**body, "tool_choice": "none"}) == whole.encode(without).ids
    asyncio.run(source.close())


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}),
        (CHAT, {"messages": [{"content": "no role"}]}),
        (CHAT, {"messages": ["text"]}),
        (CHAT, {"messages": [{"role": "user", "content": 5}]}),
        (CHAT, {"messages": [{"role": "user", "content": "x"}], "chat_template": "{{ 1 }}"}),
        (CHAT, {"messages": [{"role": "user", "content": "x"}], "continue_final_message": True}),
        (CHAT, {"messages": [{"role": "user", "content": "x"}], "tools": "none of it"}),
        (COMPLETIONS, {"prompt": None}),
        (COMPLETIONS, {"prompt": "x", "truncate_prompt_tokens": 2}),
        (COMPLETIONS, {"prompt": [-5]}),
    ],
)
def test_a_request_that_only_the_engine_understands_has_no_tokens(model: Path, path: str, body: dict[str, Any]) -> None:
    source = LocalTokens(model)
    assert tokens_of(source, path, body) is None
    asyncio.run(source.close())


def test_too_many_waiting_and_too_large_go_without(model: Path) -> None:
    async def scenario() -> None:
        source = LocalTokens(model, threads=1, waiting=2)
        raw = json.dumps({"prompt": "the quick fox " * 20_000}).encode()
        asked = read_request(COMPLETIONS, (), raw)
        answers = await asyncio.gather(*(source.tokens_of(asked, raw) for _ in range(5)))
        assert [answer is None for answer in answers] == [False, False, True, True, True]
        assert source.counters.too_many_waiting == 3
        assert await source.tokens_of(asked, b" " * (9 * 1024 * 1024)) is None
        assert source.counters.too_large == 1
        await source.close()

    asyncio.run(scenario())


def test_templates() -> None:
    parts = ChatTemplate("{% for m in messages %}{% for p in m.content %}{{ p.text }}|{% endfor %}{% endfor %}", {})
    assert parts.render([{"role": "user", "content": "a"}, {"role": "user", "content": [{"text": "b"}]}], {}) == "a|b|"
    calls = ChatTemplate("{{ messages[0].tool_calls[0].function.arguments.city }}{{ bos_token }}", {"bos_token": "<s>"})
    call = {"function": {"name": "f", "arguments": '{"city": "Zürich"}'}}
    assert calls.render([{"role": "assistant", "content": None, "tool_calls": [call]}], {}) == "Zürich<s>"
    for text in ("{{ raise_exception('no') }}", "{{ messages[5].x }}", "{{ 1 / 0 }}", "{{ ''.__class__.__mro__[1] }}x"):
        with pytest.raises(TemplateRefusal):
            ChatTemplate(text, {}).render([{"role": "user", "content": "x"}], {})
    with pytest.raises(ConfigurationError, match="does not parse"):
        ChatTemplate("{% if %}", {})


def test_what_a_model_folder_may_lack(tmp_path: Path, model: Path) -> None:
    assert open_template(tmp_path) is None
    (tmp_path / "tokenizer_config.json").write_text("not JSON")
    with pytest.raises(ConfigurationError, match=r"tokenizer_config\.json is not JSON"):
        open_template(tmp_path)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        LocalTokens(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigurationError, match="cannot be loaded"):
        Encoder(tmp_path / "tokenizer.json")
    (tmp_path / "chat_template.jinja").write_text("own file")
    (tmp_path / "tokenizer_config.json").write_text("{}")
    found = open_template(tmp_path)
    assert found is not None
    assert found.render([], {}) == "own file"


def test_ids_that_a_client_sends_are_taken_as_they_are() -> None:
    found = given_tokens((0, 2**32 - 1))
    assert found is not None
    assert found.dtype == np.uint32
    assert given_tokens((2**32,)) is None
