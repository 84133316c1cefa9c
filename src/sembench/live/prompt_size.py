"""How long a prompt is, and how much of it an exact cache could know: by the server's count and a tokenizer's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sembench.manifest import WorkloadItem
from sembench.replay.pool import DonorPool, ExactEvidence
from sembench.tokenize import Tokenizer, open_tokenizer


@dataclass(frozen=True, slots=True)
class PromptSize:
    """``exact`` is None without a tokenizer, and for streams, whose pool is all that was sent before."""

    prompt_tokens: int
    total_blocks: int
    exact: ExactEvidence | None = None

    def exact_prefix_tokens(self, block_size: int) -> int | None:
        """An engine computes at least the last token, so its exact cache never covers the whole prompt."""
        if self.exact is None:
            return None
        return min(self.exact.prefix_blocks * block_size, max(0, self.prompt_tokens - 1))


class PromptSizes:
    def __init__(self, tokenizer: str | None, block_size: int) -> None:
        self._block_size = block_size
        self._tokenizer: Tokenizer | None = open_tokenizer(tokenizer) if tokenizer is not None else None

    def describe(self) -> dict[str, Any] | None:
        """For the result; None when the server's own counts are all there is."""
        if self._tokenizer is None:
            return None
        return {
            "name": self._tokenizer.name,
            "digest": self._tokenizer.digest,
            "is_model_tokenizer": self._tokenizer.is_model_tokenizer,
        }

    def of(self, item: WorkloadItem, served_tokens: int | None) -> PromptSize:
        """The larger count is the prompt's: a chat template adds tokens that no tokenizer of the text sees."""
        if self._tokenizer is None:
            tokens = served_tokens or 0
            return PromptSize(tokens, tokens // self._block_size)
        ids = self._tokenizer.encode(item.recipient_prompt).ids
        tokens = max(len(ids), served_tokens or 0)
        if item.is_stream:
            return PromptSize(tokens, tokens // self._block_size)
        pool = DonorPool(self._block_size)
        for donor in item.donor_prompts:
            if item.tenant_of_donor(donor) == item.tenant:
                pool.add(self._tokenizer.encode(donor.text).ids)
        return PromptSize(tokens, tokens // self._block_size, pool.evidence(ids))
