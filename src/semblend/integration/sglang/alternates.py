"""From a suggestion to a plan that may be served: only positions whose tokens equal the request's, under our gates.

A suggestion with its own plan is verified, too: every run is compared with the tokens it names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from semblend.align.pair import align_pair
from semblend.contract import Decline, DeclineReason, ReusePlan
from semblend.plan.choose import choose
from semblend.plan.gates import Gates, Prompt

if TYPE_CHECKING:
    from semblend.integration.sglang.provider import SemanticPrefixResult

Tokens = NDArray[np.uint32]
UNNAMED = "alternate"


def verified(
    result: SemanticPrefixResult, tokens: Tokens, exact_prefix_tokens: int, gates: Gates, page_tokens: int
) -> tuple[ReusePlan | Decline, dict[str, Tokens]]:
    """A plan over the suggested donors, or why none; with the tokens of every donor it names."""
    planned = result.metadata.get("plan")
    if isinstance(planned, ReusePlan):
        held = result.metadata.get("donors")
        donors = _donors(held if isinstance(held, Mapping) else {}, result)
        if any(not _holds(run.donor_start, run.target_start, run.length, donors.get(run.donor_id), tokens)
               for run in planned.runs):  # fmt: skip
            return Decline(DeclineReason.NOT_TOKEN_IDENTICAL, "the suggested runs differ from the request"), {}
        return planned, donors
    donor_id = result.source_id or UNNAMED
    donor = np.asarray(result.alternate_token_ids, np.uint32)
    donor = donor[: len(donor) - len(donor) % page_tokens]  # the tree holds whole pages
    return _plan(donor_id, donor, tokens, exact_prefix_tokens, gates), {donor_id: donor}


def shared_prefix(one: Tokens, other: Tokens) -> int:
    """How many tokens two prompts have in common from their first one on."""
    length = min(len(one), len(other))
    differing = np.flatnonzero(one[:length] != other[:length])
    return int(differing[0]) if len(differing) else length


def _plan(donor_id: str, donor: Tokens, tokens: Tokens, floor: int, gates: Gates) -> ReusePlan | Decline:
    """Plan one donor that a provider suggested, as the planner does with its own."""
    if len(tokens) < gates.min_prompt_tokens:
        return Decline(
            DeclineReason.PROMPT_TOO_SHORT, f"{len(tokens)} tokens; min_prompt_tokens is {gates.min_prompt_tokens}"
        )
    limit = len(tokens) - 1
    if floor >= limit:
        return Decline(DeclineReason.EXACT_PREFIX_COVERS, f"{floor} of {len(tokens)} tokens are an exact prefix")
    least = gates.min_run_tokens
    runs = align_pair(donor, tokens, min_run=least, min_fragment=least, fuzzy=False).runs
    rows = np.column_stack([np.zeros(len(runs), np.int64), runs])
    return choose(
        Prompt(len(tokens), floor), rows, [min(floor, shared_prefix(donor, tokens))], [donor_id], gates
    ).answer


def _donors(held: Mapping[str, object], result: SemanticPrefixResult) -> dict[str, Tokens]:
    donors = {str(name): np.asarray(tokens, np.uint32) for name, tokens in held.items() if tokens is not None}
    if result.source_id is not None:
        donors.setdefault(result.source_id, np.asarray(result.alternate_token_ids, np.uint32))
    return donors


def _holds(donor_start: int, target_start: int, length: int, donor: Tokens | None, tokens: Tokens) -> bool:
    if donor is None or donor_start + length > len(donor):
        return False
    return np.array_equal(donor[donor_start : donor_start + length], tokens[target_start : target_start + length])
