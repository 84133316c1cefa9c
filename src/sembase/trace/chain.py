"""The chain check: a prefix cache needs block ids that identify a block together with everything before it.

Some public traces hash each block on its own. There the same id follows different blocks, and a prefix cache that
trusted the ids would count hits that no engine could serve.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sembase.errors import ContractError
from sembase.trace.columns import BlockTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class UnchainedBlock:
    """One id after two different parents: the requests (from 0) and positions where each was first seen."""

    content: int
    first_request: int
    first_position: int
    second_request: int
    second_position: int
    unchained_contents: int
    contents: int


def find_unchained(trace: BlockTrace) -> UnchainedBlock | None:
    """The first content that follows more than one parent, if any. A chained id follows exactly one."""
    if trace.parent is None:
        raise ContractError(f"trace '{trace.name}' is a block set: there are no prefixes to check")
    nodes_of_content = np.bincount(trace.content)
    if nodes_of_content.size == 0 or nodes_of_content.max() == 1:
        return None
    repeated = nodes_of_content[trace.content] > 1
    seen: dict[int, int] = {}
    for node in np.flatnonzero(repeated).tolist():
        first = seen.setdefault(int(trace.content[node]), node)
        if first != node:
            break
    first_request, first_position = _first_use(trace, first)
    second_request, second_position = _first_use(trace, node)
    return UnchainedBlock(
        content=int(trace.content[node]),
        first_request=first_request,
        first_position=first_position,
        second_request=second_request,
        second_position=second_position,
        unchained_contents=int(np.count_nonzero(nodes_of_content > 1)),
        contents=int(np.count_nonzero(nodes_of_content)),
    )


def require_chained(trace: BlockTrace) -> None:
    """Raise if the ids of a trace are not chained; the message says where, and what to do."""
    found = find_unchained(trace)
    if found is None:
        return
    raise ContractError(
        f"{trace.name}: block ids are not chained: the id at request {found.first_request}, block "
        f"{found.first_position} follows different blocks at request {found.second_request}, block "
        f"{found.second_position} ({found.unchained_contents} of {found.contents} ids do). These ids identify single "
        "blocks, not prefixes, so a prefix cache cannot use them as they are. Load the trace with the option "
        "unchained=by_path to identify blocks by everything before them"
    )


def _first_use(trace: BlockTrace, node: int) -> tuple[int, int]:
    reference = int(np.argmax(trace.nodes == node))
    request = int(np.searchsorted(trace.offsets, reference, side="right")) - 1
    return request, reference - int(trace.offsets[request])
