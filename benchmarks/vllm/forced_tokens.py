"""A logits processor for the server under test: forces a request to generate a given text, so that one request scores
it.

Passed to the server by ``--logits-processors``; the text comes as ``vllm_xargs: {"forced_tokens": [...]}``. The
server's default ``raw_logprobs`` are taken before any processor, so what a client reads is the model's own
distribution.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.sample.logits_processor import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
    BatchUpdate,
    LogitsProcessor,
    MoveDirectionality,
)

NAME = "forced_tokens"


class ForcedTokens(LogitsProcessor):  # type: ignore[misc,unused-ignore]
    """Rows of the batch with a forced text: its tokens, and the engine's own list of the tokens generated so far."""

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
        self._rows: dict[int, tuple[list[int], list[int]]] = {}

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is None:
            return
        for row in batch_update.removed:
            self._rows.pop(row, None)
        for row, parameters, _prompt, output in batch_update.added:
            forced = (parameters.extra_args or {}).get(NAME)
            if forced:
                self._rows[row] = ([int(token) for token in forced], output)
            else:
                self._rows.pop(row, None)
        for here, there, direction in batch_update.moved:
            moving, waiting = self._rows.pop(here, None), self._rows.pop(there, None)
            if moving is not None:
                self._rows[there] = moving
            if waiting is not None and direction == MoveDirectionality.SWAP:
                self._rows[here] = waiting

    def apply(self, logits: Any) -> Any:
        for row, (forced, output) in self._rows.items():
            if len(output) < len(forced):
                token = forced[len(output)]
                logits[row] = float("-inf")
                logits[row, token] = 0.0
        return logits
