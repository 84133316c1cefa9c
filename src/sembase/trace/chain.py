"""The chain check: block ids of a prefix cache name a block and everything in front of it, or they are no use to one.

Some public traces hash each block by itself. There the same id stands behind different blocks, and a prefix cache that
trusted the ids would count hits that no engine could serve.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sembase.errors import ContractError
from sembase.trace.columns import BlockTrace


@dataclass(frozen=True, slots=True)
class UnchainedBlock:
    """One id behind two different blocks: the requests (from 0) and positions where each was first seen."""

    content: int
    first_request: int
    first_position: int
    second_request: int
    second_position: int
    unchained_contents: int
    contents: int


def find_unchained(trace: BlockTrace) -> UnchainedBlock | None:
    """The first content that stands behind more than one parent, if any. A chained id stands behind exactly one."""
    if trace.parent is None:
        raise ContractError(f"trace '{trace.name}' is a block set: it has no prefixes to check")
    nodes_of_content = np.bincount(trace.content)
    if nodes_of_content.size == 0 or nodes_of_content.max() == 1:
        return None
    repeated = nodes_of_content[trace.content] > 1
    seen: dict[int, int] = {}
    for node in np.flatnonzero(repeated).tolist():
        first = seen.setdefault(int(trace.content[node]), node)
        if first != node:
            break
    return UnchainedBlock(
        int(trace.content[node]),
        *_first_use(trace, first),
        *_first_use(trace, node),
        int(np.count_nonzero(nodes_of_content > 1)),
        int(np.count_nonzero(nodes_of_content)),
    )


def require_chained(trace: BlockTrace) -> None:
    """Refuse a trace whose ids are not chained, and say where and what to do."""
    found = find_unchained(trace)
    if found is None:
        return
    raise ContractError(
        f"{trace.name}: block ids are not chained: the id at request {found.first_request}, block "
        f"{found.first_position} stands behind other blocks at request {found.second_request}, block "
        f"{found.second_position} ({found.unchained_contents} of {found.contents} ids do). These ids name single "
        "blocks, not prefixes, and a prefix cache cannot serve them as they are. Load with the option "
        "unchained=by_path to tell blocks apart by all that is in front of them"
    )


def _first_use(trace: BlockTrace, node: int) -> tuple[int, int]:
    reference = int(np.argmax(trace.nodes == node))
    request = int(np.searchsorted(trace.offsets, reference, side="right")) - 1
    return request, reference - int(trace.offsets[request])
