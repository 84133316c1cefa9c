"""A real server with answer budgets: what they keep is served by default, what they lost is not."""

from __future__ import annotations

import pytest
from tests.engines.measured_items import require_each_class_measured
from tests.engines.vllm.connector.client import Ask
from tests.engines.vllm.connector.connector_server import ConnectorServer
from tests.engines.vllm.connector.kinds import MAIN, MEASURED
from tests.engines.vllm.connector.prompts import Texts, opening

from semblend.contract import PlanShape

pytestmark = [pytest.mark.engine, pytest.mark.slow]
ANSWERED = pytest.mark.parametrize("server", [MEASURED], indirect=True)

REUSED = "backend_materialized_reuse"
PASSAGE_TOKENS = 320
KEPT = 0.2  # in measured_answers.json


@ANSWERED
def test_reordered_passages_are_served_at_the_measured_fraction(server: ConnectorServer, texts: Texts) -> None:
    assert "recomputes by the answer budgets" in server.log
    passages = [texts.passage(n * PASSAGE_TOKENS, PASSAGE_TOKENS) for n in range(3)]
    donor = server.client.ask(Ask([token for passage in passages for token in passage], salt="reorder"))
    server.wait_for_donor(donor)
    moved = [token for passage in reversed(passages) for token in passage]
    reply = server.client.ask(Ask(texts.question(moved, opening(1)), salt="reorder", capture=False))
    assert reply.outcome == REUSED, reply.semblend
    assert (reply.semblend["class"], reply.semblend["compute_share"]) == (PlanShape.REORDER.value, KEPT)
    assert reply.semblend["context_risk"] > 0.35, "the default gates alone decline this"
    assert reply.reused_tokens > PASSAGE_TOKENS


@ANSWERED
def test_a_class_that_lost_answers_moves_no_passage(server: ConnectorServer, texts: Texts) -> None:
    passages = [texts.passage((n + 4) * PASSAGE_TOKENS, PASSAGE_TOKENS) for n in range(3)]
    for passage in passages:
        server.wait_for_donor(server.client.ask(Ask(passage, salt="compose")))
    prompt = texts.question([token for passage in reversed(passages) for token in passage], opening(2))
    for fraction in (None, 0.1):
        reply = server.client.ask(Ask(prompt, salt="compose", capture=False, recompute_fraction=fraction))
        (alone,) = reply.semblend["runs"]
        assert alone["length"] <= PASSAGE_TOKENS, "the first passage is where it was; the moved ones are computed"
        assert alone["context_risk"] < 0.35
        assert reply.semblend["class"] == PlanShape.NEW_INSTRUCTION.value


@pytest.mark.parametrize("server", [MAIN], indirect=True)
def test_each_class_is_measured_by_the_bench(server: ConnectorServer) -> None:
    """Open gates serve every item, and each request names its fraction."""
    require_each_class_measured(server.server.base_url, server.client.model.name, "completions")
