"""What replicas must have in common before they share KV, and what they need not."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from semblend.contract.namespace import UNKNOWN, Namespace
from semblend.fleet.donor_object import RowShape
from semblend.integration.core.fleet_identity import model_content, space_identity
from semblend.integration.core.namespace import model_identity

SHAPE = RowShape(30, 2, 3, 128)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"layers": 30}')
    (folder / "model.safetensors").write_bytes(bytes(range(256)) * 40)
    (folder / "README.md").write_text("about it")
    return folder


def content_of(folder: Path, **facts: object) -> str | None:
    return model_content(Namespace(tenant=None, model=model_identity(str(folder), **facts)))


def test_a_copy_elsewhere_with_other_times_is_the_same_model(model: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / "smollm"
    shutil.copytree(model, copy)
    os.utime(copy / "model.safetensors", ns=(5, 5))
    (copy / "README.md").write_text("another text")
    assert content_of(copy) == content_of(model) is not None
    assert model_identity(str(copy)) != model_identity(str(model)), "of one host, they are two"


def test_one_changed_byte_of_the_same_size_and_time_is_another_model(model: Path) -> None:
    before, weights = content_of(model), model / "model.safetensors"
    times = weights.stat()
    changed = bytearray(weights.read_bytes())
    changed[7777] ^= 1
    weights.write_bytes(changed)
    os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert content_of(model) != before


def test_configuration_and_quantisation_are_part_of_it(model: Path) -> None:
    before = content_of(model)
    assert content_of(model, quantization="fp8") != before
    (model / "config.json").write_text('{"layers": 31}')
    assert content_of(model) != before


def test_a_model_of_a_hub_is_known_by_its_commit() -> None:
    identity = model_identity("org/model")
    assert model_content(Namespace(tenant=None, model=identity)) is None
    one, other = (
        model_content(Namespace(tenant=None, model=identity, revision=commit)) for commit in ("c0ffee", "beef")
    )
    assert one is not None
    assert one != other


def test_weights_that_are_gone_or_unknown_share_nothing(model: Path) -> None:
    namespace = Namespace(tenant=None, model=model_identity(str(model)))
    shutil.rmtree(model)
    assert model_content(namespace) is None
    assert model_content(Namespace(tenant=None, model=UNKNOWN)) is None


def test_only_what_concerns_one_host_is_left_out() -> None:
    base = Namespace(tenant="t", model="m", dtype="bf16", rope="r", kv_layout="l", block_size=16, tp_layout="tp=1")
    same = replace(base, kv_layout="other", block_size=128, tp_layout="tp=2", tokenizer="elsewhere", model="path")
    assert space_identity(base, "weights", SHAPE) == space_identity(same, "weights", SHAPE) is not None
    others = [
        replace(base, tenant="u"),
        replace(base, tenant=None),
        replace(base, dtype="fp8"),
        replace(base, rope="q"),
    ]
    names = {space_identity(each, "weights", SHAPE) for each in (base, *others)}
    names |= {space_identity(base, "other", SHAPE), space_identity(base, "weights", replace(SHAPE, layers=31))}
    assert len(names) == 7
    assert space_identity(replace(base, lora="adapter"), "weights", SHAPE) is None
    assert space_identity(replace(base, block_size=UNKNOWN), "weights", SHAPE) is None
