"""A model's folder as small as it can be: a word-level tokenizer.json with a chat template beside it."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers

TEMPLATE = (
    "{% for message in messages %}<|turn|>{{ message['role'] }} {{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant{% endif %}"
)


def write_model_folder(folder: Path) -> Path:
    words = [f"w{number}" for number in range(500)] + ["system", "user", "assistant", "[UNK]"]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["<|turn|>"])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}), encoding="utf-8")
    return folder


def text_of(count: int, first: int = 0) -> str:
    return " ".join(f"w{number % 500}" for number in range(first, first + count))
