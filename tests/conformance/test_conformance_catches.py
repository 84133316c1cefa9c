"""Adapters that break one rule each: the suite must fail them, or it proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from tests.conformance import test_conformance as suite
from tests.conformance.adapter import Answer, Driver
from tests.conformance.vllm_look_up import VllmLookUp


class OneTenant(VllmLookUp):
    """Ignores the salt."""

    def serve(self, tokens: Sequence[int], salt: str | None = None) -> Answer:
        return super().serve(tokens, None)


class Publishing(VllmLookUp):
    """Lets blended KV into the exact cache."""

    def serve(self, tokens: Sequence[int], salt: str | None = None) -> Answer:
        answer = super().serve(tokens, salt)
        self._cache.publish(tokens, salt)
        return answer


class Greedy(VllmLookUp):
    """Promises one token more than its runs and holes hold."""

    def serve(self, tokens: Sequence[int], salt: str | None = None) -> Answer:
        answer = super().serve(tokens, salt)
        return replace(answer, promised=answer.promised + 1) if answer.promised else answer


class Careless(VllmLookUp):
    """Loads from one token too far on in the donor."""

    def serve(self, tokens: Sequence[int], salt: str | None = None) -> Answer:
        answer = super().serve(tokens, salt)
        return replace(answer, runs=tuple(replace(run, donor_start=run.donor_start + 1) for run in answer.runs))


class Boastful(VllmLookUp):
    """Counts tokens that the backend never confirmed."""

    def serve(self, tokens: Sequence[int], salt: str | None = None) -> Answer:
        answer = super().serve(tokens, salt)
        return replace(answer, confirmed=len(tokens))


class Inventive(VllmLookUp):
    """Declines for reasons of its own."""

    def serve(self, tokens: Sequence[int], salt: str | None = None) -> Answer:
        answer = super().serve(tokens, salt)
        return answer if answer.promised else replace(answer, reason="felt like it")


class Fragile(VllmLookUp):
    """Lets its faults through to the engine."""

    def serve(self, tokens: Sequence[int], salt: str | None = None) -> Answer:
        self._border.call = lambda stage, request_id, action, fallback: action()  # type: ignore[method-assign]
        return super().serve(tokens, salt)


class Faithful(VllmLookUp):
    """Never forgets a donor."""

    def forget_donors(self) -> None:
        pass


def moved(adapter: Driver) -> None:
    suite.test_content_is_loaded_as_promised_or_declined_with_a_reason(adapter, "moved")


def tenants(adapter: Driver) -> None:
    suite.test_tenants_never_meet(adapter, "a", "b")


CASES: list[tuple[type[VllmLookUp], Callable[[Driver], None]]] = [
    (OneTenant, tenants),
    (Publishing, suite.test_kv_of_another_context_never_becomes_public),
    (Greedy, moved),
    (Careless, moved),
    (Boastful, moved),
    (Inventive, suite.test_text_of_its_own_is_cold_prefill),
    (Fragile, suite.test_a_fault_of_ours_is_cold_prefill_and_an_event),
    (Faithful, suite.test_forgotten_donors_are_never_used),
]


@pytest.fixture
def opened() -> Iterator[list[VllmLookUp]]:
    drivers: list[VllmLookUp] = []
    yield drivers
    for driver in drivers:
        driver.close()


@pytest.mark.parametrize(("broken", "rule"), CASES, ids=lambda case: case.__name__)
def test_a_broken_adapter_does_not_pass(
    broken: type[VllmLookUp], rule: Callable[[Driver], None], opened: list[VllmLookUp]
) -> None:
    opened += [VllmLookUp(), broken()]
    rule(opened[0])
    with pytest.raises((AssertionError, RuntimeError)):
        rule(opened[1])
