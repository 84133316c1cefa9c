"""One line of a Claude Code trace in, one session as arrays out.

Nearly all of a line is block ids, so compiled code extracts them first and the JSON is parsed without them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sembase.errors import ContractError
from sembase.finish import finish_index
from sembase.labels import label_index
from sembase.trace.files import iter_lines, parse_json
from sembase.trace.formats.lifted_ids import lift_ids

_SYSTEM: Final = label_index("system")
_ASSISTANT: Final = label_index("assistant")
_TOOL_OUTPUT: Final = label_index("tool_output")
_USER: Final = label_index("user")
_MAX_NUMBER: Final = 2**31 - 1
_Row = tuple[float, int, int, int, float, int, int, int, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Requests in time order. ``bounds`` are the start and end of each request's ids in ``ids``."""

    number: int
    block_tokens: int
    ids: NDArray[np.int64]
    bounds: NDArray[np.int64]  # [requests, 2]
    at_ms: NDArray[np.float64]
    output_tokens: NDArray[np.int32]
    finish: NDArray[np.int32]
    ttft_ms: NDArray[np.float64]
    system_blocks: NDArray[np.int32]
    earlier_blocks: NDArray[np.int32]  # blocks of the conversation's previous request, 0 for the first
    earlier_output_blocks: NDArray[np.int32]
    brings_tool_output: NDArray[np.bool_]

    def ids_of(self, request: int) -> NDArray[np.int64]:
        return self.ids[self.bounds[request, 0] : self.bounds[request, 1]]

    def labels_of(self, request: int) -> NDArray[np.uint8]:
        """Inferred, since the trace has no labels: tools and system prompt first, then what each turn added.

        A turn adds the previous answer (assistant) and then a tool result or the user's text. A node keeps the label
        it was first seen with, so the labels of earlier turns stay.
        """
        start, stop = self.bounds[request]
        added = _TOOL_OUTPUT if self.brings_tool_output[request] else _USER
        labels = np.full(int(stop - start), added, np.uint8)
        answer = int(self.earlier_blocks[request])
        labels[answer : answer + int(self.earlier_output_blocks[request])] = _ASSISTANT
        labels[: self.system_blocks[request]] = _SYSTEM
        return labels


def iter_sessions(path: Path, max_sessions: int) -> Iterator[Session]:
    """One session in memory at a time."""
    for number, (line_number, line) in enumerate(iter_lines(path)):
        if number >= max_sessions:
            return
        where = f"{path.name} line {line_number}"
        rest, ids, bounds = lift_ids(line, where)
        yield _session(parse_json(rest, where), number, ids, bounds, where)


def _session(value: object, number: int, ids: NDArray[np.int64], bounds: NDArray[np.int64], where: str) -> Session:
    if not isinstance(value, dict) or not isinstance(value.get("requests"), list):
        raise ContractError(f"{where}: expected a session with a list of requests")
    block_tokens = value.get("block_size")
    if not isinstance(block_tokens, int) or isinstance(block_tokens, bool) or block_tokens < 1:
        raise ContractError(f"{where}: block_size must be a whole number of at least 1")
    rows: list[_Row] = []
    _collect(value, 0.0, block_tokens, bounds, rows, where)
    if not rows:
        raise ContractError(f"{where}: the session has no requests")
    rows.sort(key=lambda row: row[0])
    at_ms, array, output, finish, ttft, system, earlier, earlier_output, tool = zip(*rows, strict=True)
    return Session(
        number=number,
        block_tokens=block_tokens,
        ids=ids,
        bounds=bounds[np.array(array)],
        at_ms=np.array(at_ms, np.float64),
        output_tokens=np.array(output, np.int32),
        finish=np.array(finish, np.int32),
        ttft_ms=np.array(ttft, np.float64),
        system_blocks=np.array(system, np.int32),
        earlier_blocks=np.array(earlier, np.int32),
        earlier_output_blocks=np.array(earlier_output, np.int32),
        brings_tool_output=np.array(tool, np.bool_),
    )


def _collect(
    conversation: dict[str, Any],
    start_ms: float,
    block_tokens: int,
    bounds: NDArray[np.int64],
    rows: list[_Row],
    where: str,
) -> None:
    """Append the requests of a session, or of a subagent (whose times start at its own start), to ``rows``."""
    system_tokens = sum(_number(conversation, name, where, 0.0) for name in ("tool_tokens", "system_tokens"))
    system = int(system_tokens) // block_tokens
    earlier = earlier_output = 0
    for request in conversation["requests"]:
        if not isinstance(request, dict):
            raise ContractError(f"{where}: a request is not a JSON object")
        at_ms = start_ms + 1000.0 * _number(request, "t", where)
        if isinstance(request.get("requests"), list):
            _collect(request, at_ms, block_tokens, bounds, rows, where)
            continue
        array = request.get("hash_ids")
        if not isinstance(array, list) or len(array) != 1:
            raise ContractError(f"{where}: the request at {at_ms / 1000:g} s has no hash_ids")
        blocks = int(bounds[array[0], 1] - bounds[array[0], 0])
        output = int(_number(request, "out", where, -1.0))
        ttft_ms = 1000.0 * _number(request, "ttft", where, math.nan)
        brings_tool_output = "tool_result" in (request.get("input_types") or ())
        row = (
            at_ms,
            array[0],
            output,
            finish_index(request.get("stop")),
            ttft_ms,
            system,
            earlier,
            -(-earlier_output // block_tokens),
            brings_tool_output,
        )
        rows.append(row)
        earlier, earlier_output = blocks, max(0, output)


def _number(given: dict[str, Any], name: str, where: str, default: float | None = None) -> float:
    value = given.get(name)
    if value is None and default is not None:
        return default
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= _MAX_NUMBER:
        raise ContractError(f"{where}: '{name}' must be a number from 0 to {_MAX_NUMBER}, found {value!r:.40}")
    return float(value)
