"""``make gpusim-matrix``: every pair of settings at least once, as a table of errors against cold and made by hand.

Then every fault under the three combinations of runner and scheduling in which the engine's own recovery fails. Ends
with an error if a figure is beyond its limit.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.engines.gpusim.configuration import Backend, Simulation
from tests.engines.gpusim.running import EngineFailedError, measure, missing

MAX_ERROR: Final = 1e-4  # of log-probabilities, in fp32
_ROWS: Final = (
    ("fa2", 16, 2, "async", 1),
    ("fa2", 32, 1, "sync", 1),
    ("fa2", 64, 1, "sync", 2),
    ("fa3", 16, 2, "async", 1),
    ("fa3", 16, 2, "sync", 2),
    ("fa3", 32, 1, "async", 1),
    ("fa3", 64, 2, "async", 1),
    ("flashinfer", 16, 1, "async", 1),
    ("flashinfer", 32, 2, "sync", 1),
    ("flashinfer", 64, 2, "async", 2),
    ("triton", 16, 1, "async", 1),
    ("triton", 32, 2, "sync", 2),
    ("triton", 64, 1, "async", 1),
)
MATRIX: Final = tuple(
    Simulation(backend=Backend(backend), block_tokens=block, runner=runner, is_async=scheduling == "async", ranks=ranks)
    for backend, block, runner, scheduling, ranks in _ROWS
)
COMPILED: Final = Simulation(backend=Backend.FLASH_ATTENTION_3, is_compiled=True)  # without --enforce-eager
FAULT_MATRIX: Final = tuple(
    Simulation(backend=Backend.FLASH_ATTENTION_3, runner=runner, is_async=is_async, ranks=ranks)
    for runner, is_async in ((1, True), (2, False), (2, True))
    for ranks in (1, 2)
)


def problems_of(result: dict[str, Any]) -> Iterator[str]:
    """What a result of the scenarios ``blend``, ``everything`` and ``crowd`` must not show."""
    blend, everything, crowd = result["blend"], result["everything"], result["crowd"]
    if result["is_compiled"] and not result["start"]["uses_graph"]:
        yield "gaps were not computed through the compiled graph"
    if blend["outcome"] != "backend_materialized_reuse":
        yield f"nothing was blended: {blend}"
    if blend["reused"][0] != blend["reused"][1]:
        yield f"the document was not reused whole in both contexts: {blend}"
    if not max(blend["same_context_error"], blend["blend_error"]) <= MAX_ERROR:
        yield f"the blend is not the one made by hand: {blend}"
    if not blend["blend_against_cold"] > 20 * MAX_ERROR:
        yield f"the blend equals a cold answer: {blend}"
    if everything["computed"] != everything["claimed"]:
        yield f"not everything was recomputed: {everything}"
    if not everything["error"] <= MAX_ERROR or not everything["same_tokens"]:
        yield f"everything recomputed is not the cold answer: {everything}"
    if not crowd["unchanged"] or crowd["blended"] != "backend_materialized_reuse" or not crowd["joined_in_flight"]:
        yield f"neighbours of a blended request changed: {crowd}"


def fault_problems_of(faults: dict[str, Any]) -> Iterator[str]:
    """What a result of the scenario ``faults`` must not show."""
    if not faults:
        yield "no fault was injected"
    for name, found in faults.items():
        if not found["same_tokens"] or not found["error"] <= MAX_ERROR:
            yield f"{name}: not the cold answer: {found}"
        if found["reused_tokens"] or found["outcome"] != "backend_declined_reuse":
            yield f"{name}: reuse is claimed: {found}"
        if found["reason"] != "internal_error" or not found["computed_tokens"]:
            yield f"{name}: the provenance does not say that the claim was computed: {found}"


def main() -> int:
    if reason := missing():
        sys.stdout.write(f"{reason}\n")
        return 3
    failed = 0
    head = ("configuration", "blend", "recompute all", "neighbours", "minutes", "CPU s")
    write_row(*head)
    for simulation in (*MATRIX, COMPILED):
        failed += _measured(simulation, "blend", "everything", "crowd")
    write_row("configuration", "fault, answer tokens", "error", "outcome", "computed", "detail")
    for simulation in FAULT_MATRIX:
        failed += _measured(simulation, "faults")
    return int(bool(failed))


def _measured(simulation: Simulation, *scenarios: str) -> int:
    with tempfile.TemporaryDirectory(prefix="gpusim-") as folder:
        try:
            result = measure(simulation, Path(folder), *scenarios)
        except EngineFailedError as error:
            write_row(simulation.name, f"failed: {str(error)[-300:]}")
            return 1
    if "faults" in scenarios:
        for name, found in result["faults"].items():
            outcome, computed = found["outcome"], found["computed_tokens"]
            write_row(simulation.name, name, f"{found['error']:.1e}", outcome, str(computed), found["detail"])
        problems = list(fault_problems_of(result["faults"]))
    else:
        write_row(
            simulation.name,
            f"{result['blend']['blend_error']:.1e}",
            f"{result['everything']['error']:.1e}",
            "unchanged" if result["crowd"]["unchanged"] else "CHANGED",
            f"{result['seconds'] / 60:.1f}",
            f"{result['cpu_s']:.0f}",
        )
        problems = list(problems_of(result))
    for problem in problems:
        write_row(simulation.name, f"PROBLEM {problem}")
    return len(problems)


def write_row(*cells: str) -> None:
    sys.stdout.write("| " + " | ".join(cells) + " |\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
