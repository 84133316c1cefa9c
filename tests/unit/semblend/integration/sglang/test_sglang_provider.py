from __future__ import annotations

import numpy as np
import pytest
from tests.unit.semblend.integration.sglang.trackers import NAMESPACE, Tokens, TrackerBench, words

from sembase.errors import ConfigurationError
from semblend.contract import Namespace, ReusePlan
from semblend.integration.sglang.planner_provider import MAX_STAGED
from semblend.integration.sglang.provider import (
    NoProvider,
    SemanticPrefixProvider,
    SemanticPrefixResult,
    StagedRequest,
    TokenIds,
    load_provider,
)

DOCUMENT = words(1, 600)


def staged(bench: TrackerBench, rid: str, tokens: Tokens, namespace: Namespace = NAMESPACE, boundary: int = 0) -> None:
    bench.provider.on_request_staged(StagedRequest(rid, tokens, namespace, boundary))


def test_the_interface_asks_for_two_methods_and_gives_the_rest() -> None:
    class Least(SemanticPrefixProvider):
        def on_prefix_miss(self, rid: str, token_ids: TokenIds) -> SemanticPrefixResult | None:
            return None

        def on_request_cached(self, rid: str, token_ids: TokenIds) -> None:
            return None

    least = Least()
    least.on_init()
    least.on_reset()
    least.on_shutdown()
    with pytest.raises(TypeError):
        SemanticPrefixProvider()  # type: ignore[abstract]
    plain = SemanticPrefixResult([1, 2])
    assert (plain.num_cached_tokens, plain.skip_insert, plain.source_id, dict(plain.metadata)) == (0, False, None, {})


def test_a_find_suggests_the_donors_tokens_and_brings_its_plan() -> None:
    bench = TrackerBench()
    bench.serve_cold("donor", DOCUMENT)
    tokens = np.concatenate([words(2, 40), DOCUMENT, words(3, 40)])
    staged(bench, "r", tokens)
    result = bench.provider.on_prefix_miss("r", tokens)
    assert result is not None
    plan = result.metadata["plan"]
    assert isinstance(plan, ReusePlan)
    assert result.source_id in plan.donor_ids
    assert result.num_cached_tokens == plan.reused_tokens > 500
    assert np.array_equal(np.asarray(result.alternate_token_ids), DOCUMENT[: len(DOCUMENT) // 16 * 16])


def test_only_beyond_the_exact_match_and_only_in_the_namespace() -> None:
    bench = TrackerBench()
    bench.serve_cold("donor", DOCUMENT)
    tokens = np.concatenate([DOCUMENT, words(3, 40)])
    staged(bench, "r", tokens, boundary=592)
    assert bench.provider.on_prefix_miss("r", tokens) is None
    staged(bench, "other", tokens, Namespace(tenant="t", model="m"))
    assert bench.provider.on_prefix_miss("other", tokens) is None


def test_what_continues_a_donor_replaces_it_and_what_adds_little_is_none() -> None:
    bench = TrackerBench()
    bench.serve_cold("one", DOCUMENT)
    bench.serve_cold("two", np.concatenate([DOCUMENT[:592], words(5, 400)]))
    assert len(bench.provider.donors) == 1
    bench.serve_cold("three", np.concatenate([words(6, 20), DOCUMENT[:500]]))
    assert len(bench.provider.donors) == 1


def test_requests_known_at_a_time_are_bounded() -> None:
    bench = TrackerBench()
    short = words(1, 4)
    for number in range(MAX_STAGED + 5):
        staged(bench, f"r{number}", short)
    bench.provider.on_request_released(f"r{MAX_STAGED + 4}")
    assert len(bench.provider._staged) == MAX_STAGED - 1


def test_a_request_that_leaves_before_its_look_up_is_forgotten() -> None:
    bench = TrackerBench()
    bench.tracker.expect("r", DOCUMENT, NAMESPACE)
    assert list(bench.provider._staged) == ["r"]
    bench.tracker.released("r")
    assert not bench.provider._staged


class OwnProvider(SemanticPrefixProvider):
    """The least a provider must write."""

    def on_prefix_miss(self, rid: str, token_ids: TokenIds) -> SemanticPrefixResult | None:
        return SemanticPrefixResult(alternate_token_ids=DOCUMENT)

    def on_request_cached(self, rid: str, token_ids: TokenIds) -> None:
        pass


class NotOne:
    pass


def test_a_provider_with_two_methods_serves_where_its_tokens_are_equal() -> None:
    bench = TrackerBench()
    bench.tree["donor"] = DOCUMENT[:592]
    provider = load_provider(f"{__name__}:OwnProvider")
    bench.tracker.provider = provider
    tokens = np.concatenate([words(3, 40), DOCUMENT, words(4, 20)])
    assert bench.ask("r", tokens) > 0
    record = bench.record("r")
    assert record.plan is not None
    assert all(
        np.array_equal(
            DOCUMENT[run.donor_start : run.donor_start + run.length], tokens[run.target_start : run.target_end]
        )
        for run in record.plan.runs
    )
    bench.tracker.loaded(record)
    bench.tracker.confirmed(record, 1.0, 1.0)
    bench.tracker.released("r")


@pytest.mark.parametrize("name", ["no.such.module:Name", f"{__name__}:Missing", f"{__name__}:NotOne", "json"])
def test_a_provider_that_cannot_be_made_is_the_users_error(name: str) -> None:
    with pytest.raises(ConfigurationError, match="provider"):
        load_provider(name)


def test_without_a_provider_every_request_is_cold() -> None:
    bench = TrackerBench()
    bench.serve_cold("donor", DOCUMENT)
    bench.tracker.provider = NoProvider()
    assert bench.ask("r", np.concatenate([words(3, 40), DOCUMENT])) == 0
