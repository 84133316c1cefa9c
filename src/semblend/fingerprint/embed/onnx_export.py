"""Writes the folder ``OnnxEmbedder`` reads. Needs torch; runs once, at installation time, never while serving."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Final

import torch
from transformers import AutoModel

from semblend.fingerprint.embed.weights import WeightsNotFoundError

_INPUTS: Final = ("input_ids", "attention_mask", "token_type_ids")
_COPIED: Final = ("config.json", "sentence_bert_config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt")


class _HiddenStates(torch.nn.Module):
    """The exporter needs positional tensors as input and one tensor as output."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
        states: torch.Tensor = self.model(input_ids=ids, attention_mask=mask, token_type_ids=types).last_hidden_state
        return states


def export_minilm_to_onnx(source_dir: str | Path, target_dir: str | Path) -> Path:
    """Export a BERT-like sentence model with free batch and length. Returns the path of ``model.onnx``."""
    source, target = Path(source_dir), Path(target_dir)
    if not (source / "tokenizer.json").is_file():
        raise WeightsNotFoundError(f"{source} has no tokenizer.json, so it is not a model folder")
    target.mkdir(parents=True, exist_ok=True)
    model = AutoModel.from_pretrained(source, local_files_only=True, attn_implementation="eager")
    # Three tensors of their own: the exporter takes one tensor passed twice for one input.
    example = tuple(torch.full((2, 16), value, dtype=torch.int64) for value in (100, 1, 0))
    free = {0: torch.export.Dim("windows", min=1, max=1024), 1: torch.export.Dim("pieces", min=2, max=512)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's remarks about itself; the result is compared in the tests
        torch.onnx.export(
            _HiddenStates(model).eval(),
            example,
            target / "model.onnx",
            input_names=list(_INPUTS),
            output_names=["last_hidden_state"],
            dynamic_shapes=(free, free, free),
            external_data=False,
            dynamo=True,
            verbose=False,
        )
    for name in _COPIED:
        if (source / name).is_file():
            shutil.copy(source / name, target / name)
    return target / "model.onnx"
