"""A converted checkpoint is accepted only when it is whole: files of a folder in, problems as an error out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scripts.models.known import KnownModel

SAMPLES = (
    "The quick brown fox jumps over the lazy dog.",
    "def f(x):\n\treturn x ** 2  # tabs, newlines and  double spaces\n",
    "Numbers 12,345.67 and dates 2024-05-06; accents: café, naïve, Zürich.",
    "中文文本与表情 🙂 and mixed scripts: Привет, שלום.",
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n",
)


class FlawedCheckpointError(Exception):
    """The files do not fit each other; the message says which and how to make them again."""


def check_tokenizer(model: KnownModel, folder: Path) -> str:
    """Encode and decode samples with the ``tokenizers`` library alone; returns a summary."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for sample in SAMPLES:
        ids = tokenizer.encode(sample, add_special_tokens=False).ids
        back = tokenizer.decode(ids, skip_special_tokens=False)
        if back != sample:
            raise FlawedCheckpointError(f"the tokenizer changes a text: {sample!r} -> {back!r}")
    opening = tokenizer.encode(SAMPLES[0]).tokens[0]
    if model.first_token is not None and opening != model.first_token:
        raise FlawedCheckpointError(f"the tokenizer begins a prompt with {opening!r} instead of {model.first_token!r}")
    return f"{len(SAMPLES)} samples round-trip exactly; vocabulary of {tokenizer.get_vocab_size()} tokens"


def check_weights(model: KnownModel, folder: Path) -> str:
    """The file is whole, and its tensors have the shapes that configuration and table promise; returns a summary."""
    config = json.loads((folder / "config.json").read_text())
    tensors, expected_bytes = read_header(folder / "model.safetensors")
    seen_bytes = (folder / "model.safetensors").stat().st_size
    layers = {int(name.split(".")[2]) for name in tensors if name.startswith("model.layers.")}
    problems = [
        seen_bytes != expected_bytes and f"{seen_bytes} bytes instead of {expected_bytes}",
        layers != set(range(model.layers)) and f"layers {sorted(layers)}",
        config["num_key_value_heads"] != model.kv_heads and f"{config['num_key_value_heads']} KV heads",
        {t["dtype"] for t in tensors.values()} != {"BF16"} and "weights that are not bfloat16",
        tensors.get("model.embed_tokens.weight", {}).get("shape") != [model.vocabulary, config["hidden_size"]]
        and f"an embedding that does not fit {model.vocabulary} tokens",
        "quantization_config" in config and "a configuration that still speaks of quantization",
    ]
    found = [str(problem) for problem in problems if problem]
    if found:
        raise FlawedCheckpointError(f"{model.name} holds {'; '.join(found)}; convert again with --force")
    return f"{len(tensors)} tensors in {len(layers)} layers, {seen_bytes / 1e6:.0f} MB of bfloat16"


def read_header(path: Path) -> tuple[dict[str, Any], int]:
    """Tensor descriptions of a safetensors file, and how long the file must be for them."""
    with path.open("rb") as file:
        header_bytes = int.from_bytes(file.read(8), "little")
        tensors: dict[str, Any] = json.loads(file.read(header_bytes))
    tensors.pop("__metadata__", None)
    return tensors, 8 + header_bytes + max(tensor["data_offsets"][1] for tensor in tensors.values())
