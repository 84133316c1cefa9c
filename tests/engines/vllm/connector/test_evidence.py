"""What the connector says about itself agrees with itself: events, log lines, provenance, usage and ``/metrics``."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from tests.engines.vllm.connector.client import Ask, Reply, cached_tokens
from tests.engines.vllm.connector.connector_server import ConnectorServer
from tests.engines.vllm.connector.kinds import EVERY_MODEL
from tests.engines.vllm.connector.prompts import Texts, opening
from tests.waiting import wait_until

from semblend.contract import (
    DonorEvicted,
    DonorRegistered,
    FaultContained,
    LoadAdvertised,
    LookupFinished,
    Materialized,
)

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.parametrize("server", EVERY_MODEL, indirect=True),
]

REUSED = "backend_materialized_reuse"


@pytest.fixture
def donor_and_recipient(server: ConnectorServer, texts: Texts) -> tuple[Reply, Reply]:
    """A donor and the recipient blended from it; asked once per test, in the same tenant but behind new openings."""
    client = server.client
    seed = len(server.event_lines())
    document = texts.passage(0, 400)
    donor = client.ask(Ask(document, salt=f"evidence-{seed}"))
    server.wait_for_donor(donor)
    recipient = client.ask(Ask(texts.question(document, opening(seed)), max_tokens=4, salt=f"evidence-{seed}"))
    assert recipient.outcome == REUSED
    return donor, recipient


def test_events_come_in_the_order_in_which_things_happened(
    server: ConnectorServer, donor_and_recipient: tuple[Reply, Reply]
) -> None:
    donor, recipient = donor_and_recipient
    lines = server.event_lines()
    assert [line.sequence for line in lines] == list(range(len(lines)))
    assert {line.engine for line in lines} == {"vllm"}
    times = [line.timestamp_ms for line in lines]
    assert times == sorted(times)
    registered = server.events_of(donor)[-1]
    assert isinstance(registered, DonorRegistered)
    assert registered.donor_id == donor.semblend["donor_id"]
    assert registered.tokens == donor.prompt_tokens
    events = server.events_of(recipient)
    assert [type(event) for event in events] == [LookupFinished, LoadAdvertised, Materialized]
    lookup, advertised, materialized = events
    assert isinstance(lookup, LookupFinished)
    assert isinstance(advertised, LoadAdvertised)
    assert isinstance(materialized, Materialized)
    everything = server.events()
    assert everything.index(registered) < everything.index(lookup)
    assert lookup.donor_ids == advertised.donor_ids == materialized.donor_ids == (registered.donor_id,)
    assert lookup.reusable_tokens == recipient.loaded_tokens
    assert advertised.tokens == materialized.reused_tokens + materialized.computed_tokens
    assert advertised.boundary == lookup.exact_prefix_tokens == 0
    assert lookup.prompt_tokens == recipient.prompt_tokens


def test_the_client_receives_what_the_backend_confirmed(
    server: ConnectorServer, donor_and_recipient: tuple[Reply, Reply]
) -> None:
    donor, recipient = donor_and_recipient
    provenance = recipient.semblend
    materialized = server.events_of(recipient)[-1]
    assert isinstance(materialized, Materialized)
    assert provenance["evidence"] == "backend_confirmed"
    assert provenance["compute_share"] == 0.0, "by default, of so little"
    assert provenance["reused_tokens"] == materialized.reused_tokens == recipient.kept_tokens
    assert provenance["computed_tokens"] == materialized.computed_tokens
    assert provenance["prompt_tokens"] == recipient.prompt_tokens
    assert provenance["reason"] is None
    assert recipient.cached_tokens == provenance["exact_prefix_tokens"] + provenance["reused_tokens"]
    assert donor.semblend["outcome"] == "cold_fallback"
    assert donor.cached_tokens == donor.reused_tokens == 0


def test_a_stream_carries_usage_but_no_provenance(server: ConnectorServer, texts: Texts) -> None:
    """This engine puts ``kv_transfer_params`` into whole bodies only: streaming clients read usage and the events."""
    document = texts.passage(0, 400)
    server.wait_for_donor(server.client.ask(Ask(document, salt="streamed")))
    ask = Ask(texts.question(document, opening(21)), max_tokens=4, salt="streamed", capture=False)
    chunks = list(server.client.stream(ask))
    assert "kv_transfer_params" not in json.dumps(chunks)
    materialized = server.events_of(chunks[0]["id"])[-1]
    assert isinstance(materialized, Materialized)
    assert cached_tokens(chunks[-1]["usage"]) == materialized.reused_tokens > 250


def test_several_choices_are_several_recipients(server: ConnectorServer, texts: Texts) -> None:
    document = texts.passage(0, 400)
    server.wait_for_donor(server.client.ask(Ask(document, salt="choices")))
    prompt = texts.question(document, opening(22))
    reply = server.client.ask(Ask(prompt, max_tokens=4, salt="choices", n=3, capture=False))
    assert len(reply.body["choices"]) == 3
    loads = [
        event for event in server.events() if isinstance(event, Materialized) and reply.request_id in event.request_id
    ]
    assert len(loads) == 3
    after = server.client.ask(Ask(prompt, salt="choices", reuse=False, capture=False))
    assert after.cached_tokens == 0


def test_the_exact_cache_is_preferred(server: ConnectorServer, texts: Texts) -> None:
    document = texts.passage(0, 400)
    server.wait_for_donor(server.client.ask(Ask(document, salt="repeated")))
    again = server.client.ask(Ask(document, salt="repeated"))
    assert again.outcome == "exact_prefix"
    assert again.cached_tokens == again.semblend["exact_prefix_tokens"] == 384
    assert again.reused_tokens == 0


def test_the_documented_lines_are_in_the_log(server: ConnectorServer, donor_and_recipient: tuple[Reply, Reply]) -> None:
    donor, recipient = donor_and_recipient
    log = server.log
    donor_id = donor.semblend["donor_id"]
    registered, materialized = server.events_of(donor)[-1], server.events_of(recipient)[-1]
    assert isinstance(registered, DonorRegistered)
    assert isinstance(materialized, Materialized)
    for line in (
        f"SemBlend donor registered request_id={registered.request_id} namespace={registered.namespace} "
        "tokens=400 blocks=4",
        f"SemBlend semantic lookup hit request_id={materialized.request_id} donor_id={donor_id} similarity=",
        f"SemBlend request-local experimental load advertised request_id={materialized.request_id} "
        f"donor_id={donor_id} tokens={materialized.reused_tokens + materialized.computed_tokens}",
        f"SemBlend materialized request_id={materialized.request_id} donor_id={donor_id} "
        f"tokens={materialized.reused_tokens}",
    ):
        assert line in log
    assert log.count("SemBlend is ready: self-test passed") == 1


def test_the_figures_on_metrics_are_the_sums_of_the_events(
    server: ConnectorServer, donor_and_recipient: tuple[Reply, Reply]
) -> None:
    def differing() -> dict[str, tuple[float, float]]:
        """Metric by metric: shown, and summed up from the stream. What the last step did is shown by the next one."""
        server.client.ask(Ask([1, 2, 3], salt="flush"))
        shown = server.client.metrics()
        events = server.events()
        lookups = [e for e in events if isinstance(e, LookupFinished)]
        loads = [e for e in events if isinstance(e, Materialized)]
        expected: dict[str, float] = {
            "lookups_total": len(lookups),
            "lookup_seconds_count": len(lookups),
            "blended_requests_total": len(loads),
            "load_seconds_count": len(loads),
            "sparse_forward_seconds_count": sum(load.computed_tokens > 0 for load in loads),
            "reused_tokens_total": sum(load.reused_tokens for load in loads),
            "computed_tokens_total": sum(load.computed_tokens for load in loads),
            "evicted_donors_total": sum(isinstance(e, DonorEvicted) for e in events),
            "captured_tokens_total": sum(e.tokens for e in events if isinstance(e, DonorRegistered)),
            "donors": sum(isinstance(e, DonorRegistered) for e in events)
            - sum(isinstance(e, DonorEvicted) for e in events),
        }
        reasons = Counter(e.decline_reason for e in lookups if e.decline_reason is not None)
        expected |= {f'declined_total{{reason="{reason}"}}': count for reason, count in reasons.items()}
        stages = Counter(e.stage for e in events if isinstance(e, FaultContained))
        expected |= {f'faults_total{{stage="{stage}"}}': count for stage, count in stages.items()}
        pairs = {name: (shown.get(f"vllm:semblend_{name}", 0.0), value) for name, value in expected.items()}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

    wait_until(lambda: not differing(), "the metrics never agreed with the events")
    assert differing() == {}
    assert server.client.metrics()["vllm:semblend_host_bytes"] > 0
