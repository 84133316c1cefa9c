"""Run by the converter's interpreter: one part of a GGUF file as files of a checkpoint.

``python read_gguf.py GGUF tokenizer OUTPUT [FIRST_TOKEN]`` or ``python read_gguf.py GGUF weights OUTPUT``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from tokenizers.processors import TemplateProcessing
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig


def write_tokenizer(gguf: Path, output: str, first_token: str | None) -> None:
    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    if first_token is not None:
        begin_with(tokenizer, first_token)
    tokenizer.save_pretrained(output)
    if tokenizer.chat_template:
        Path(output, "chat_template.jinja").write_text(tokenizer.chat_template)


def begin_with(tokenizer: Any, token: str) -> None:
    """The conversion loses that every prompt begins with a token; without it the model's text degenerates."""
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{token} $A",
        pair=f"{token} $A {token}:1 $B:1",
        special_tokens=[(token, tokenizer.convert_tokens_to_ids(token))],
    )


def write_weights(gguf: Path, output: str) -> None:
    model = AutoModelForCausalLM.from_pretrained(
        str(gguf.parent),
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    if hasattr(model.config, "quantization_config"):  # the weights are plain now; an engine would look for a GGUF
        del model.config.quantization_config
    model.save_pretrained(output)


if __name__ == "__main__":
    file, part, folder, *first = sys.argv[1:]
    if part == "tokenizer":
        write_tokenizer(Path(file), folder, first[0] if first else None)
    else:
        write_weights(Path(file), folder)
