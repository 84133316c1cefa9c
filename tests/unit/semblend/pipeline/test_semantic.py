"""``SemanticFinder``: never blocks longer than asked, never raises, never returns a forgotten donor."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from sembase.errors import ConfigurationError, MissingDependencyError
from semblend.contract import UNKNOWN, Discovery, Namespace
from semblend.fingerprint.embed import WeightsNotFoundError
from semblend.fingerprint.embed.jaccard import JaccardEmbedder
from semblend.pipeline import semantic
from semblend.pipeline.semantic import SemanticFinder, start_finder
from semblend.search.vectors import WindowIndex, bytes_per_window

pytest.importorskip("usearch", reason="usearch is not installed")

HERE, THERE = Namespace(tenant="a", model="m"), Namespace(tenant="b", model="m")
LONG_S = 300.0


class GatedEmbedder:
    """Embeds by word shingles, but only while the gate is open; fails on texts that say so."""

    name = "gated"
    dimensions = 64

    def __init__(self) -> None:
        self._inner = JaccardEmbedder(self.dimensions)
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.embedded: list[str] = []

    def embed(self, text: str) -> NDArray[np.float32]:
        self.entered.set()
        assert self.gate.wait(LONG_S)
        self.embedded.append(text)
        if "broken" in text:
            raise RuntimeError("this text cannot be embedded")
        return self._inner.embed(text)


@pytest.fixture
def embedder() -> GatedEmbedder:
    return GatedEmbedder()


@pytest.fixture
def finder(embedder: GatedEmbedder) -> Iterator[SemanticFinder]:
    with SemanticFinder(embedder, queue_limit=8, staged_limit=4) as started:
        yield started
        embedder.gate.set()


def text_of(seed: int, words: int = 120) -> str:
    return " ".join(random.Random(seed).choices([f"w{number}" for number in range(500)], k=words))


def names(found: tuple[Discovery, ...]) -> list[str]:
    return [discovery.donor_id for discovery in found]


def ask(finder: SemanticFinder, text: str, namespace: Namespace = HERE, wait_s: float = LONG_S) -> list[str]:
    return names(finder.find(text, namespace, limit=4, min_similarity=0.6, wait_s=wait_s))


def test_finds_the_donor_that_resembles(finder: SemanticFinder) -> None:
    for seed in range(4):
        assert finder.register(f"d{seed}", HERE, text_of(seed))
    assert finder.drain(LONG_S)
    found = finder.find(text_of(2), HERE, limit=4, min_similarity=0.6, wait_s=LONG_S)
    assert names(found) == ["d2"]
    assert found[0].similarity == pytest.approx(1, abs=0.01)
    assert found[0].source == "gated"
    everything = finder.find(text_of(2), HERE, limit=4, min_similarity=-1, wait_s=LONG_S)
    assert len(everything) == 4
    assert len(finder.find(text_of(2), HERE, limit=2, min_similarity=-1, wait_s=LONG_S)) == 2
    assert finder.counters.registered == 4


def test_namespaces_are_separate_and_unknown_ones_are_refused(finder: SemanticFinder) -> None:
    unknown = Namespace(tenant=UNKNOWN, model="m")
    finder.register("d", HERE, text_of(1))
    assert not finder.register("e", unknown, text_of(1))
    finder.stage(text_of(1), unknown)
    assert finder.drain(LONG_S)
    assert ask(finder, text_of(1), THERE) == []
    assert ask(finder, text_of(1), unknown) == []
    assert ask(finder, text_of(1)) == ["d"]


def test_an_answer_that_comes_too_late_is_there_for_the_next_question(
    finder: SemanticFinder, embedder: GatedEmbedder
) -> None:
    finder.register("d", HERE, text_of(1))
    assert finder.drain(LONG_S)
    embedder.gate.clear()
    assert ask(finder, text_of(1), wait_s=0.02) == []
    assert finder.counters.timeouts == 1
    embedder.gate.set()
    assert finder.drain(LONG_S)
    assert ask(finder, text_of(1), wait_s=0) == ["d"]
    assert finder.counters.timeouts == 1
    assert embedder.embedded.count(text_of(1)) == 2  # once as a donor, once as a question


def test_staging_looks_up_without_waiting(finder: SemanticFinder, embedder: GatedEmbedder) -> None:
    finder.register("d", HERE, text_of(1))
    finder.stage(text_of(1), HERE)
    assert finder.drain(LONG_S)
    embedder.gate.clear()  # whatever follows must not need the embedder
    assert ask(finder, text_of(1), wait_s=LONG_S) == ["d"]


def test_a_staged_answer_learns_of_later_donors_without_embedding_again(
    finder: SemanticFinder, embedder: GatedEmbedder
) -> None:
    assert ask(finder, text_of(1)) == []
    finder.register("d", HERE, text_of(1))
    assert finder.drain(LONG_S)
    assert ask(finder, text_of(1)) == ["d"]
    assert len(embedder.embedded) == 2


def test_a_deeper_question_is_asked_again(finder: SemanticFinder) -> None:
    for seed in range(8):
        finder.register(f"d{seed}", HERE, text_of(seed))
    assert finder.drain(LONG_S)
    for seed in range(8, 16):
        finder.register(f"d{seed}", HERE, text_of(seed))
    assert finder.drain(LONG_S)
    finder.register("d16", HERE, text_of(16))
    assert finder.drain(LONG_S)
    assert len(finder.find(text_of(1), HERE, limit=1, min_similarity=-1, wait_s=LONG_S)) == 1
    assert len(finder.find(text_of(1), HERE, limit=17, min_similarity=-1, wait_s=LONG_S)) == 17


def test_the_staged_answers_are_bounded(finder: SemanticFinder, embedder: GatedEmbedder) -> None:
    for seed in range(6):
        ask(finder, text_of(seed))
    ask(finder, text_of(5))
    assert len(embedder.embedded) == 6
    ask(finder, text_of(0))  # the first of six is no longer among four
    assert len(embedder.embedded) == 7


def test_a_full_queue_drops_and_counts_and_never_blocks(finder: SemanticFinder, embedder: GatedEmbedder) -> None:
    embedder.gate.clear()
    assert finder.register("first", HERE, text_of(0))
    assert embedder.entered.wait(LONG_S)
    accepted = [finder.register(f"d{seed}", HERE, text_of(seed)) for seed in range(1, 12)]
    assert accepted == [True] * 8 + [False] * 3
    assert finder.counters.dropped == 3
    assert finder.counters.queue_length == 8
    assert not finder.drain(0.01)
    embedder.gate.set()
    assert finder.drain(LONG_S)
    assert finder.counters.registered == 9
    assert finder.counters.queue_length == 0
    assert ask(finder, text_of(11)) == []


def test_a_dropped_replacement_does_not_leave_the_old_text_behind(
    finder: SemanticFinder, embedder: GatedEmbedder
) -> None:
    finder.register("d", HERE, text_of(1))
    assert finder.drain(LONG_S)
    embedder.gate.clear()
    embedder.entered.clear()
    finder.register("busy", HERE, text_of(2))
    assert embedder.entered.wait(LONG_S)
    for seed in range(3, 11):
        finder.register(f"d{seed}", HERE, text_of(seed))
    assert not finder.register("d", HERE, text_of(20))
    embedder.gate.set()
    assert finder.drain(LONG_S)
    assert ask(finder, text_of(1)) == []


def test_a_forgotten_donor_never_comes_back(finder: SemanticFinder, embedder: GatedEmbedder) -> None:
    finder.register("indexed", HERE, text_of(1))
    assert finder.drain(LONG_S)
    assert ask(finder, text_of(1)) == ["indexed"]
    finder.forget("indexed")
    assert ask(finder, text_of(1), wait_s=0) == []  # not even from the staged answer

    embedder.gate.clear()
    embedder.entered.clear()
    finder.register("being embedded", HERE, text_of(2))
    assert embedder.entered.wait(LONG_S)
    finder.register("queued", HERE, text_of(3))
    finder.forget("being embedded")
    finder.forget("queued")
    finder.forget("never registered")
    embedder.gate.set()
    assert finder.drain(LONG_S)
    assert ask(finder, text_of(2)) == []
    assert ask(finder, text_of(3)) == []
    assert text_of(3) not in embedder.embedded[:-1]  # a forgotten donor is not even embedded


def test_a_donor_registered_again_answers_for_its_new_text_only(finder: SemanticFinder) -> None:
    finder.register("d", HERE, text_of(1))
    finder.register("d", HERE, text_of(2))
    finder.forget("d")
    finder.register("d", THERE, text_of(3))
    assert finder.drain(LONG_S)
    assert ask(finder, text_of(1)) == ask(finder, text_of(2)) == ask(finder, text_of(3)) == []
    assert ask(finder, text_of(3), THERE) == ["d"]


def test_failures_are_counted_remembered_and_kept_inside(finder: SemanticFinder) -> None:
    finder.register("bad", HERE, "a broken text")
    assert ask(finder, "another broken text") == []
    assert finder.drain(LONG_S)
    assert finder.counters.errors == 2
    assert isinstance(finder.last_error, RuntimeError)
    finder.register("good", HERE, text_of(1))
    assert finder.drain(LONG_S)
    assert ask(finder, text_of(1)) == ["good"]
    assert ask(finder, "another broken text") == []
    assert finder.counters.errors == 3  # asked again, not answered from a failure


def test_donors_the_index_evicts_are_no_longer_found(embedder: GatedEmbedder) -> None:
    index = WindowIndex(embedder.dimensions, byte_budget=2 * bytes_per_window(embedder.dimensions))
    with SemanticFinder(embedder, index) as finder:
        for seed in range(3):
            finder.register(f"d{seed}", HERE, text_of(seed))
        assert finder.drain(LONG_S)
        assert [ask(finder, text_of(seed)) for seed in range(3)] == [[], ["d1"], ["d2"]]
        finder.forget("d0")
        finder.register("d0", HERE, text_of(0))
        assert finder.drain(LONG_S)
        assert ask(finder, text_of(0)) == ["d0"]


def test_questions_overtake_registrations_but_not_for_ever(finder: SemanticFinder, embedder: GatedEmbedder) -> None:
    embedder.gate.clear()
    finder.register("busy", HERE, text_of(0))
    assert embedder.entered.wait(LONG_S)
    for seed in range(1, 4):
        finder.register(f"d{seed}", HERE, text_of(seed))
    for seed in range(10, 18):
        finder.stage(text_of(seed), HERE)
    embedder.gate.set()
    assert finder.drain(LONG_S)
    assert embedder.embedded[1:10] == [text_of(seed) for seed in (*range(10, 18), 1)]


def test_after_close_nothing_is_accepted_and_no_caller_waits(embedder: GatedEmbedder) -> None:
    finder = SemanticFinder(embedder)
    embedder.gate.clear()
    finder.register("busy", HERE, text_of(0))
    assert embedder.entered.wait(LONG_S)
    answers: list[list[str]] = []
    waiting = threading.Thread(target=lambda: answers.append(ask(finder, text_of(1))))
    waiting.start()
    while finder.counters.queue_length == 0:
        time.sleep(0.001)
    closing = threading.Thread(target=finder.close)
    closing.start()
    waiting.join(LONG_S)
    assert answers == [[]]
    embedder.gate.set()
    closing.join(LONG_S)
    assert not closing.is_alive()
    assert not finder.register("d", HERE, text_of(1))
    assert ask(finder, text_of(2)) == []
    finder.forget("busy")
    finder.close()


def test_many_threads_register_ask_and_forget_together(embedder: GatedEmbedder) -> None:
    failures: list[Exception] = []
    with SemanticFinder(embedder, queue_limit=10_000) as finder:

        def work(worker: int) -> None:
            try:
                for step in range(25):
                    donor, text = f"{worker}-{step}", text_of(worker * 100 + step)
                    finder.register(donor, HERE, text)
                    assert set(ask(finder, text)) <= {donor}
                    if step % 3 == 0:
                        finder.forget(donor)
                        assert ask(finder, text, wait_s=0.001) == []
            except Exception as error:  # noqa: BLE001 - carried to the test's own thread
                failures.append(error)

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert finder.drain(LONG_S)
        assert finder.counters.errors == 0
        for worker in range(6):
            for step in range(25):
                expected = [] if step % 3 == 0 else [f"{worker}-{step}"]
                assert ask(finder, text_of(worker * 100 + step)) == expected


def test_start_finder_builds_by_name() -> None:
    assert start_finder("none") is None
    finder = start_finder("jaccard")
    assert finder is not None
    finder.close()
    with pytest.raises(ConfigurationError, match="unknown embedder"):
        start_finder("no such embedder")


@pytest.mark.parametrize(
    "missing", [MissingDependencyError("torch", "embedder", "this"), WeightsNotFoundError("no weights")]
)
def test_start_finder_says_what_is_missing_and_goes_without(
    monkeypatch: pytest.MonkeyPatch, missing: Exception
) -> None:
    def build(name: str) -> None:
        raise missing

    monkeypatch.setattr(semantic, "build_embedder", build)
    with pytest.warns(UserWarning, match="semantic search is off"):
        assert start_finder("minilm") is None
    assert start_finder("auto") is None, "it was not asked for, so nothing is logged"
