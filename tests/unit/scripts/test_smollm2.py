"""A checkpoint is accepted only when it is whole and fits its configuration and tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scripts.smollm2 import TOKENIZER_FILES, WEIGHT_FILES, convert, verify_weights

VOCABULARY, HIDDEN = 10, 4


def write_checkpoint(folder: Path, layers: int = 2, dtype: str = "BF16", cut_bytes: int = 0, **config: Any) -> None:
    settings = {"num_hidden_layers": 2, "hidden_size": HIDDEN, **config}
    (folder / "config.json").write_text(json.dumps(settings))
    names = ["model.embed_tokens.weight", *(f"model.layers.{n}.mlp.up_proj.weight" for n in range(layers))]
    size = VOCABULARY * HIDDEN * 2
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for n, name in enumerate(names):
        header[name] = {"dtype": dtype, "shape": [VOCABULARY, HIDDEN], "data_offsets": [n * size, (n + 1) * size]}
    text = json.dumps(header).encode()
    data = len(text).to_bytes(8, "little") + text + bytes(size * len(names))
    (folder / "model.safetensors").write_bytes(data[: len(data) - cut_bytes])


def test_a_whole_checkpoint_is_accepted(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    verify_weights(tmp_path, VOCABULARY)


@pytest.mark.parametrize(
    ("flaw", "message"),
    [
        ({"cut_bytes": 1}, "bytes instead of"),
        ({"layers": 1}, r"layers \[0\]"),
        ({"dtype": "F16"}, "not bfloat16"),
        ({"quantization_config": {}}, "speaks of quantization"),
        ({"hidden_size": 5}, "embedding that does not fit"),
    ],
)
def test_a_flawed_checkpoint_is_refused(tmp_path: Path, flaw: dict[str, Any], message: str) -> None:
    write_checkpoint(tmp_path, **flaw)
    with pytest.raises(SystemExit, match=message):
        verify_weights(tmp_path, VOCABULARY)


def test_what_is_there_is_not_converted_again_but_made_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scripts.smollm2.ensure_venv", lambda _recipe: pytest.fail("nothing is missing"))
    for name in (*TOKENIZER_FILES, *WEIGHT_FILES):
        (tmp_path / name).touch(mode=0o600)
    convert(tmp_path)
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in WEIGHT_FILES} == {0o644}
