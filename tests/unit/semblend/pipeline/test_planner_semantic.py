"""The semantic path suggests; what it may add to a plan is decided by token identity and by the documented switches."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from tests.waiting import PATIENCE_S

from semblend import Decline, DeclineReason, Gates, Namespace, Planner, ReusePlan, Settings
from semblend.contract import Outcome
from semblend.pipeline.semantic import SemanticFinder

pytest.importorskip("usearch", reason="the semantic path needs the extra 'embedder'")

NS = Namespace(tenant="a", model="m")
RNG = np.random.default_rng(5)
WORDS = [f"word{i}" for i in range(20_000)]


def text_of(tokens: list[int]) -> str:
    return " ".join(WORDS[t] for t in tokens)


def edited(tokens: list[int], every: int) -> list[int]:
    """One token in ``every`` changed: no run reaches 64 tokens, yet the text is nearly the same."""
    return [(t + 1) % len(WORDS) if i % every == every - 1 else t for i, t in enumerate(tokens)]


DOCUMENT = RNG.integers(0, len(WORDS), 1500).tolist()
LONG = RNG.integers(0, len(WORDS), 6000).tolist()


def ask(recipient: list[int], donor: list[int], environment: dict[str, str]) -> ReusePlan | Decline:
    defaults = {"SEMBLEND_EMBEDDER": "jaccard", "SEMBLEND_MIN_SIMILARITY": "0.1"}
    settings, gates = Settings.from_environment(defaults | environment), Gates(min_reuse_ratio=0.0)
    with Planner(settings=settings, gates=gates, budget_bytes=1 << 22, semantic_wait_s=PATIENCE_S) as planner:
        planner.register("donor", donor, NS, text=text_of(donor))
        assert planner.drain(PATIENCE_S)
        return planner.plan(recipient, NS, text=text_of(recipient))


def test_similar_but_not_identical_ends_as_discovery() -> None:
    answer = ask(edited(DOCUMENT, 40), DOCUMENT, {})
    assert isinstance(answer, Decline)
    assert answer.reason is DeclineReason.NOT_TOKEN_IDENTICAL
    assert answer.outcome is Outcome.SEMANTIC_DISCOVERY_ONLY
    assert [d.donor_id for d in answer.discoveries] == ["donor"]
    assert answer.discoveries[0].source == "jaccard"


def test_fragments_are_planned_only_when_allowed_and_only_where_tokens_are_equal() -> None:
    recipient = edited(DOCUMENT, 40)
    answer = ask(recipient, DOCUMENT, {"SEMBLEND_EXACT_MATERIALIZATION_ONLY": "0"})
    assert isinstance(answer, ReusePlan)
    assert answer.reused_tokens > 0.9 * len(recipient)
    for run in answer.runs:
        assert DOCUMENT[run.donor_start : run.donor_start + run.length] == recipient[run.target_start : run.target_end]


def test_fuzzy_chunks_reach_where_edit_scripts_are_too_dear() -> None:
    recipient = edited(LONG, 30)
    switches = {"SEMBLEND_EXACT_MATERIALIZATION_ONLY": "0"}
    without = ask(recipient, LONG, switches)
    with_fuzzy = ask(recipient, LONG, switches | {"SEMBLEND_FUZZY_CHUNKS": "1"})
    assert isinstance(with_fuzzy, ReusePlan)
    assert with_fuzzy.reused_tokens > 0.8 * len(recipient)
    assert isinstance(without, Decline) or without.reused_tokens < with_fuzzy.reused_tokens


def test_minimum_similarity_decides_who_is_considered() -> None:
    answer = ask(edited(DOCUMENT, 40), DOCUMENT, {"SEMBLEND_MIN_SIMILARITY": "1.0"})
    assert isinstance(answer, Decline)
    assert answer.reason is DeclineReason.NO_CANDIDATE
    assert answer.discoveries == ()


def test_the_embedder_decides_whether_there_is_a_semantic_path() -> None:
    answer = ask(edited(DOCUMENT, 40), DOCUMENT, {"SEMBLEND_EMBEDDER": "none"})
    assert isinstance(answer, Decline)
    assert answer.reason is DeclineReason.NO_CANDIDATE


def test_discovery_only_reports_and_never_plans() -> None:
    answer = ask(DOCUMENT, DOCUMENT, {"SEMBLEND_DISCOVERY_ONLY": "1"})
    assert isinstance(answer, Decline)
    assert answer.reason is DeclineReason.DISCOVERY_ONLY
    assert {d.source for d in answer.discoveries} == {"tokens"}


def test_another_tenant_is_not_even_suggested() -> None:
    settings = Settings(embedder="jaccard", min_similarity=0.0)
    with Planner(settings=settings, budget_bytes=1 << 22, semantic_wait_s=PATIENCE_S) as planner:
        planner.register("donor", DOCUMENT, Namespace(tenant="b", model="m"), text=text_of(DOCUMENT))
        planner.register("none", DOCUMENT, Namespace(tenant=None, model="m"), text=text_of(DOCUMENT))
        assert planner.drain(PATIENCE_S)
        answer = planner.plan(edited(DOCUMENT, 40), NS, text=text_of(edited(DOCUMENT, 40)))
    assert isinstance(answer, Decline)
    assert answer.discoveries == ()


def test_a_forgotten_donor_is_not_suggested() -> None:
    settings = Settings(embedder="jaccard", min_similarity=0.0)
    with Planner(settings=settings, budget_bytes=1 << 22, semantic_wait_s=PATIENCE_S) as planner:
        planner.register("donor", DOCUMENT, NS, text=text_of(DOCUMENT))
        planner.forget("donor")
        assert planner.drain(PATIENCE_S)
        answer = planner.plan(edited(DOCUMENT, 40), NS, text=text_of(edited(DOCUMENT, 40)))
    assert isinstance(answer, Decline)
    assert answer.discoveries == ()


def test_the_caller_does_not_wait_longer_than_it_chose() -> None:
    answered = threading.Event()

    class Slow:
        name = "slow"
        dimensions = 8

        def embed(self, text: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
            assert answered.wait(PATIENCE_S), "the caller waited for this"
            return np.ones((1, 8), np.float32)

    finder = SemanticFinder(Slow())
    with Planner(settings=Settings(), finder=finder, budget_bytes=1 << 22, semantic_wait_s=0.01) as planner:
        planner.plan(DOCUMENT, NS, text="anything")
        assert finder.counters.timeouts == 1
        answered.set()


def test_a_missing_package_warns_once_and_the_token_path_works(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    monkeypatch.delitem(sys.modules, "semblend.fingerprint.embed.minilm", raising=False)
    from semblend.fingerprint.embed.catalogue import EMBEDDERS

    monkeypatch.delitem(EMBEDDERS._loaded, "minilm", raising=False)
    with pytest.warns(UserWarning, match=r"kvmend\[embedder\]"):
        planner = Planner(settings=Settings(embedder="minilm"), budget_bytes=1 << 22)
    planner.register("donor", DOCUMENT, NS, text=text_of(DOCUMENT))
    assert isinstance(planner.plan(DOCUMENT, NS, text=text_of(DOCUMENT)), ReusePlan)
