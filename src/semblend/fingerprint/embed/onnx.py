"""The same window embeddings through ONNX Runtime, without torch: on a GPU where CUDA works, else on the CPU.

Reads a folder with ``model.onnx`` and ``tokenizer.json``, as ``onnx_export`` or the usual exporters write it.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Final

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer

from semblend.fingerprint.embed.base import unit_rows
from semblend.fingerprint.embed.model_windows import ModelWindows
from semblend.fingerprint.embed.weights import WeightsNotFoundError, default_onnx_folder
from semblend.fingerprint.embed.windows import MAX_WINDOWS

_CUDA: Final = "CUDAExecutionProvider"
_CPU: Final = "CPUExecutionProvider"
_warned_of_cpu = False


class OnnxEmbedder:
    """``model`` is the folder to read; without it, the one in the user's cache that an export may have filled."""

    name = "onnx_gpu"

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        threads: int = 1,
        batch_windows: int = 16,
        max_windows: int = MAX_WINDOWS,
    ) -> None:
        folder = default_onnx_folder() if model is None else Path(model)
        for file in ("model.onnx", "tokenizer.json"):
            if not (folder / file).is_file():
                raise WeightsNotFoundError(
                    f"{folder} holds no {file}. semblend.fingerprint.embed.onnx_export.export_minilm_to_onnx writes "
                    f"such a folder; nothing is downloaded or exported while serving."
                )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=_providers())
        if self._session.get_providers()[0] != _CUDA:
            _warn_of_cpu()
        self._inputs = {argument.name for argument in self._session.get_inputs()}
        self._batch_windows = batch_windows
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._windows = ModelWindows(tokenizer, _max_sequence(folder), max_windows)
        self.dimensions = int(self._embed(self._windows.rows("word")).shape[1])

    @property
    def provider(self) -> str:
        return str(self._session.get_providers()[0])

    def embed(self, text: str) -> NDArray[np.float32]:
        rows = self._windows.rows(text)
        batches = [self._embed(rows[at : at + self._batch_windows]) for at in range(0, len(rows), self._batch_windows)]
        return np.concatenate(batches) if batches else np.empty((0, self.dimensions), dtype=np.float32)

    def _embed(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        feed = {"input_ids": rows, "attention_mask": np.ones_like(rows), "token_type_ids": np.zeros_like(rows)}
        states = self._session.run(None, {name: feed[name] for name in self._inputs})[0]
        # Windows have no padding, so the plain mean over positions is the model's masked mean pooling.
        return unit_rows(np.asarray(states, dtype=np.float32).mean(axis=1))


def _providers() -> list[str]:
    return [_CUDA, _CPU] if _CUDA in onnxruntime.get_available_providers() else [_CPU]


def _warn_of_cpu() -> None:
    global _warned_of_cpu  # noqa: PLW0603 - once per process is the point
    if not _warned_of_cpu:
        _warned_of_cpu = True
        warnings.warn("ONNX Runtime has no working CUDA provider here: embedding on the CPU", stacklevel=3)


def _max_sequence(folder: Path) -> int:
    """What sentence-transformers reads at once with this model, where the folder says so; otherwise MiniLM's 256."""
    file = folder / "sentence_bert_config.json"
    return int(json.loads(file.read_text())["max_seq_length"]) if file.is_file() else 256
