"""Outcomes of ``make model-matrix`` to the page of models: JSON lines in, ``docs/reference/models.md`` out.

Exits 1, and writes nothing, if an outcome is not what ``tests/engines/model_matrix/variants.py`` expects.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from tests.engines.model_matrix.variants import VARIANTS, Variant

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "models.md"
# Largest error of a log-probability that rounding explains, over the vocabulary. In bf16 and with an 8-bit cache it
# depends on the model, and a router of experts may choose another expert for a token: there the bound is a fraction of
# what reuse itself changes.
FP32_ERROR = 1e-3
ROUNDED_FRACTION = 0.5
INTRODUCTION = """\
# Models

Whether a model is served is decided when the engine starts, by a self-test on the loaded model, not by the name of its
class. This page lists the variants the test was run on, each with tiny random weights in the real vLLM engine on the
CPU (`make model-matrix`; the configurations are in `tests/engines/model_matrix/variants.py`). It does not limit what is
served, and it says nothing about the quality of answers: that is [fidelity](../guides/fidelity.md).

For each layer the self-test takes the rotation from the layer's own rotary module, or none, and compares: K and V of
every layer at several distances, up to the end of the context. Errors are given in units of their limit (rounding of
the cache's dtype plus that of angles in fp32), as the largest of all layers with one rotation: of K with equal inputs,
of the layer's output with equal inputs, and of K and V of the whole shifted model. "Wrong rotations" are planted in one
layer and must be refused. "Blend" is the largest difference of a log-probability between a blended answer and the same
blend made by hand, with keys computed by the model itself at their new positions; "reuse changes" is what the blend
differs from a cold answer, on random weights, for comparison.
"""


def faults_of(variant: Variant, outcome: dict[str, Any]) -> list[str]:
    """What is not as the table of variants expects it."""
    if variant.refused:
        if outcome["served"] or variant.refused not in outcome["reason"]:
            return [f"expected to be refused with '{variant.refused}', got '{outcome['reason'] or 'served'}'"]
        return []
    if not outcome["served"]:
        return [f"expected to be served, got '{outcome['reason']}'"]
    faults = []
    rotates = any(group["rotary_dim"] for group in outcome["groups"])
    if outcome["wrong_rotations_caught"] != outcome["wrong_rotations_planted"] or (
        rotates and not outcome["wrong_rotations_planted"]
    ):
        faults.append("a planted wrong rotation was not caught")
    if not outcome["reused_tokens"]:
        faults.append(outcome["reason"])
    is_rounded = "dtype" in variant.engine or "kv_cache_dtype" in variant.engine
    bound = ROUNDED_FRACTION * outcome["blend_against_cold"] if is_rounded else FP32_ERROR
    for name in ("same_context_error", "blend_error"):
        if not outcome[name] <= bound:
            faults.append(f"{name} is {outcome[name]:.3g}, more than {bound:.3g}")
    if not outcome["blend_against_cold"] > FP32_ERROR:
        faults.append("reuse changes nothing, so that the comparison could not tell")
    return faults


def page(outcomes: dict[str, dict[str, Any]]) -> str:
    served = [variant for variant in VARIANTS if outcomes[variant.name]["served"]]
    refused = [variant for variant in VARIANTS if not outcomes[variant.name]["served"]]
    lines = [
        INTRODUCTION,
        f"## Served: {len(served)} variants\n",
        "| Variant | Family | Layers: rotation | K | Output | Whole | Wrong rotations | Blend | Reuse changes |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_served_row(variant, outcomes[variant.name]) for variant in served),
        f"\n## Refused: {len(refused)} variants\n",
        "| Variant | Family | Reason |",
        "|---|---|---|",
        *(f"| {one.name} | {one.family} | {_cell(outcomes[one.name]['reason'])} |" for one in refused),
    ]
    costs = [outcomes[variant.name] for variant in served]
    lines.append(
        f"\nThe self-test makes {min(cost['forwards'] for cost in costs)} to {max(cost['forwards'] for cost in costs)} "
        "forward passes of 48 tokens."
    )
    return "\n".join(lines) + "\n"


def _served_row(variant: Variant, outcome: dict[str, Any]) -> str:
    groups = outcome["groups"]
    kinds = ", ".join(f"{group['layers']}: {_kind(group)}" for group in groups)
    errors = [
        " / ".join(f"{group[name]:.2f}" for group in groups) for name in ("key_error", "output_error", "whole_error")
    ]
    caught = f"{outcome['wrong_rotations_caught']} of {outcome['wrong_rotations_planted']}"
    blend = f"{outcome['blend_error']:.1e} | {outcome['blend_against_cold']:.1e}"
    return f"| {variant.name} | {variant.family} | {kinds} | {' | '.join(errors)} | {caught} | {blend} |"


def _kind(group: dict[str, Any]) -> str:
    if not group["rotary_dim"]:
        return "none"
    return f"{group['rotary_dim']} dimensions{' interleaved' if group['interleaved'] else ''}"


def _cell(text: str) -> str:
    return text.removeprefix("self-test failed: ").replace("|", "\\|").rstrip(".")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("outcomes", type=Path)
    lines = parser.parse_args().outcomes.read_text(encoding="utf-8").splitlines()
    outcomes = {row["name"]: row for row in map(json.loads, lines)}
    missing = [variant.name for variant in VARIANTS if variant.name not in outcomes]
    faults = {one.name: faults_of(one, outcomes[one.name]) for one in VARIANTS if one.name in outcomes}
    for name, found in faults.items():
        for fault in found:
            print(f"{name}: {fault}", file=sys.stderr)
    if missing:
        print(f"not run: {', '.join(missing)}", file=sys.stderr)
    if missing or any(faults.values()):
        return 1
    PAGE.write_text(page(outcomes), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
