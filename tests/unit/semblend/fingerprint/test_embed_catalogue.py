"""Embedders by name, and the errors for a missing package or missing weights."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sembase.errors import ConfigurationError, MissingDependencyError
from sembase.registry import Registry
from semblend.fingerprint.embed import EMBEDDERS, Embedder, WeightsNotFoundError, build_embedder
from semblend.fingerprint.embed.weights import find_minilm


def test_built_in_names() -> None:
    assert {"none", "jaccard", "minilm", "onnx_gpu"} <= set(EMBEDDERS.names())


def test_none_is_no_embedder() -> None:
    assert build_embedder("none") is None


def test_options_reach_the_embedder() -> None:
    embedder: Embedder | None = build_embedder("jaccard", dimensions=64)
    assert embedder is not None
    assert (embedder.name, embedder.dimensions) == ("jaccard", 64)


def test_an_unknown_name_suggests_a_known_one() -> None:
    with pytest.raises(ConfigurationError, match="Did you mean 'minilm'"):
        build_embedder("minilml")


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [("minilm", "torch", "embedder"), ("onnx_gpu", "onnxruntime", "onnx-gpu")],
)
def test_a_missing_package_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, name: str, package: str, extra: str
) -> None:
    fresh: Registry[object] = Registry("embedder")
    module = {"minilm": "minilm:MiniLmEmbedder", "onnx_gpu": "onnx:OnnxEmbedder"}[name]
    fresh.register(name, f"semblend.fingerprint.embed.{module}")
    monkeypatch.setattr("semblend.fingerprint.embed.catalogue.EMBEDDERS", fresh)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"semblend.fingerprint.embed.{module.partition(':')[0]}", raising=False)
    with pytest.raises(MissingDependencyError, match=rf"{package}.*kvmend\[{extra}\]"):
        build_embedder(name)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsNotFoundError, match=r"config\.json"):
        find_minilm(tmp_path)


def test_a_given_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert find_minilm(tmp_path) == tmp_path


def test_a_name_is_not_a_folder() -> None:
    assert find_minilm("nobody/no-such-model") is None
