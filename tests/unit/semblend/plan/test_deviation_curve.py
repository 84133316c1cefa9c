"""Deviation curves: presets are marked as presets, and the calibration file is read strictly."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembase.errors import ConfigurationError
from semblend.plan.deviation_curve import (
    PRESETS,
    DeviationCurve,
    Provenance,
    decode_calibration,
    encode_calibration,
    preset_curve,
)

curves = st.builds(
    DeviationCurve,
    model=st.text(min_size=1),
    revision=st.none() | st.text(),
    deviation=st.lists(st.floats(0, 2), min_size=1, max_size=40).map(tuple),
    noise_floor=st.floats(0, 0.2),
    provenance=st.sampled_from(Provenance),
)


def record(**changes: Any) -> dict[str, Any]:
    values = {
        "schema": "semblend.calibration.v1",
        "model": "m",
        "revision": None,
        "layers": 2,
        "deviation": [0.5, 0.25],
        "noise_floor": 0.01,
        "provenance": "measured",
    }
    return {**values, **changes}


@pytest.mark.parametrize("architecture", sorted(PRESETS))
@pytest.mark.parametrize("layers", [1, 16, 28, 48, 80])
def test_presets_have_the_layers_asked_for_and_say_they_are_presets(architecture: str, layers: int) -> None:
    curve = preset_curve(architecture, layers)
    assert curve.layers == layers
    assert curve.provenance is Provenance.PRESET
    assert curve.model == f"preset:{architecture}"
    assert all(0 < value <= 1 for value in curve.deviation)
    middle = curve.deviation[layers // 2]
    assert min(curve.deviation) <= middle <= max(curve.deviation[0], curve.deviation[-1])


def test_preset_values_follow_the_formula() -> None:
    first = 0.12 + 0.15 + 0.35 * math.exp(-27 / 3)
    assert preset_curve("qwen2", 28).deviation[0] == pytest.approx(first)


@pytest.mark.parametrize("name", ["Qwen2.5-7B", "meta-llama/Llama-3-8B", "", "gpt"])
def test_no_preset_is_guessed_from_a_model_name(name: str) -> None:
    with pytest.raises(ConfigurationError, match="no preset"):
        preset_curve(name, 28)


def test_a_preset_needs_layers() -> None:
    with pytest.raises(ConfigurationError, match="layer"):
        preset_curve("llama", 0)


def test_the_reference_page_shows_a_valid_file_and_the_presets_there_are() -> None:
    page = (Path(__file__).parents[4] / "docs" / "reference" / "calibration-format.md").read_text()
    example = re.search(r"```json\n(.*?)```", page, re.DOTALL)
    assert example is not None
    assert decode_calibration(example[1]).provenance is Provenance.MEASURED
    for name, shape in PRESETS.items():
        values = (shape.base, shape.early, shape.early_decay, shape.late, shape.late_decay)
        row = re.search(rf"^\| `{name}` \|(.*)\|$", page, re.MULTILINE)
        assert row is not None
        assert tuple(map(float, row[1].split("|"))) == values


@given(curves)
def test_calibration_files_round_trip(curve: DeviationCurve) -> None:
    assert decode_calibration(encode_calibration(curve)) == curve


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        (json.dumps(record(schema="semblend.calibration.v2")), "schema"),
        (json.dumps(record(extra=1)), "extra"),
        (json.dumps({k: v for k, v in record().items() if k != "noise_floor"}), "noise_floor"),
        (json.dumps(record(model=1)), "model"),
        (json.dumps(record(model="")), "must name its model"),
        (json.dumps(record(revision=3)), "revision"),
        (json.dumps(record(layers=3)), "layers"),
        (json.dumps(record(layers=True, deviation=[0.5])), "layers"),
        (json.dumps(record(layers=0, deviation=[])), "at least one layer"),
        (json.dumps(record(deviation="high")), "deviation"),
        (json.dumps(record(deviation=[0.5, "high"])), "deviation"),
        (json.dumps(record(deviation=[0.5, True])), "deviation"),
        (json.dumps(record(deviation=[0.5, -0.1])), "not negative"),
        (json.dumps(record(deviation=[0.5, math.nan])), "finite"),
        (json.dumps(record(noise_floor=None)), "noise_floor"),
        (json.dumps(record(provenance="guessed")), "provenance"),
        (json.dumps(record(provenance=[])), "provenance"),
    ],
)
def test_what_is_not_a_calibration_is_refused_by_name(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        decode_calibration(text)
