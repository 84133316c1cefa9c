from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sembase.errors import ContractError
from sembase.latency import LatencyModel
from semgate.placement import price_from_calibration, price_of
from semgate.placement.cost import PRIOR_MS_PER_STREAM

MODEL = LatencyModel(20.0, 0.05, ms_per_million_pairs=3.0, ms_per_cached_token=0.001, step_ms=7.0)


@given(st.integers(1, 100_000), st.integers(0, 120_000))
def test_saved_is_the_difference_of_two_modelled_prefills(prompt: int, cached: int) -> None:
    held = min(cached, prompt - 1)
    cold = MODEL.prefill_ms(np.array([prompt]), np.array([0]))[0]
    warm = MODEL.prefill_ms(np.array([prompt - held]), np.array([held]))[0]
    saved = price_of(MODEL).saved_ms(prompt, np.array([float(cached)]))[0]
    assert saved == pytest.approx(cold - warm, rel=1e-6, abs=1e-6)


def test_the_wait_is_never_less_than_what_is_after_the_head() -> None:
    price = price_of(LatencyModel())
    one = np.array([1.0])
    ages = [price.wait_ms(1_000 * one, 0 * one, 400 * one, age * one)[0] for age in (-5.0, 0.0, 10.0, 1e9)]
    assert ages == pytest.approx([80.0, 80.0, 70.0, 48.0])


def test_a_model_without_decoding_gets_the_stated_prior() -> None:
    assert price_of(LatencyModel()).ms_per_stream == PRIOR_MS_PER_STREAM
    assert price_of(LatencyModel(ms_per_decoding_stream=2.0)).ms_per_stream == 2.0
    assert price_of(MODEL).base_ms == 27.0


def test_a_calibration_file_is_read_and_anything_else_refused(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    record = {"schema": "semantic_kv.calibration.v1", "model": LatencyModel(source="calibrated").as_record()}
    path.write_text(json.dumps(record))
    price = price_from_calibration(path)
    assert (price.base_ms, price.ms_per_token, price.source) == (80.0, 0.08, "calibrated")
    path.write_text("{}")
    with pytest.raises(ContractError, match="kvmend simulate calibrate"):
        price_from_calibration(path)
