"""The seven ``SEMBLEND_*`` variables on running servers, against the default one: each changes what it says it changes.

Edited copies of a document have no stretch of 64 equal tokens: the token path alone finds nothing in them, so whatever
comes of them is the semantic path's doing.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from scripts.engines import vllm
from scripts.private_venv import python_of
from tests.engines.vllm.connector.client import Ask, Reply
from tests.engines.vllm.connector.connector_server import ConnectorServer
from tests.engines.vllm.connector.kinds import DISABLED, FRAGMENTS, MAIN, SEGMENTS, SEMANTIC, SUGGESTING
from tests.engines.vllm.connector.prompts import Texts, opening
from tests.waiting import PATIENCE_S, wait_until

from semblend.contract import Materialized

pytestmark = [pytest.mark.engine, pytest.mark.slow]
# Four servers for switches that are off by default: the planner's tests and the conformance suite hold the same laws.
nightly = pytest.mark.nightly

REUSED = "backend_materialized_reuse"
DOCUMENT_TOKENS = 1000
FEW_ATTEMPTS = 3
LONG_TOKENS = 4300  # beyond this product of lengths, alignment does without edit scripts


@pytest.fixture(scope="module")
def semantic_path() -> None:
    """The window index is an optional package; without it the connector serves tokens alone and says so once."""
    found = subprocess.run([str(python_of(vllm.RECIPE)), "-c", "import usearch"], capture_output=True, check=False)
    if found.returncode:
        pytest.skip("no usearch in .engines/vllm: the semantic path is off there")


def edited(tokens: list[int], every: int, by: int) -> list[int]:
    """Every ``every``-th token is another one, so equal stretches have ``every - 1`` tokens."""
    return [by if position % every == every - 1 else token for position, token in enumerate(tokens)]


def by_similarity(reply: Reply) -> list[dict[str, Any]]:
    return [found for found in reply.semblend["discoveries"] if found["source"] == SEMANTIC["SEMBLEND_EMBEDDER"]]


def ask_edited(
    server: ConnectorServer,
    texts: Texts,
    salt: str,
    length: int,
    every: int,
    *,
    until: Callable[[Reply], object] = by_similarity,
    attempts: int | None = None,
) -> Reply:
    """A donor, and then its edited copy behind an opening of its own.

    The semantic path is given a few milliseconds and may be late on a busy machine, but it keeps its answer: a prompt
    that comes again gets it. So the copy is asked until that path has done its part, each time from an empty cache.
    Some of the short stretches may be found by tokens alone before. ``attempts``: where nothing may come of it.
    """
    document = texts.passage(0, length)
    server.wait_for_donor(server.client.ask(Ask(document, salt=salt, capture=True)))
    (other, *_) = texts.encode(" instead")
    recipient = [*texts.encode(opening(length + every)), *edited(document, every, other)]
    replies: list[Reply] = []

    def is_done() -> bool:
        server.client.reset()
        replies.append(server.client.ask(Ask(recipient, salt=salt, capture=False)))
        return len(replies) == attempts or bool(until(replies[-1]))

    wait_until(is_done, "the semantic path found nothing", patience_s=2 * PATIENCE_S)
    return replies[-1]


def ask_moved(server: ConnectorServer, texts: Texts, salt: str) -> Reply:
    document = texts.passage(0, DOCUMENT_TOKENS)
    server.wait_for_donor(server.client.ask(Ask(document, salt=salt, capture=True)))
    return server.client.ask(Ask(texts.question(document, opening(41)), salt=salt, capture=False))


@pytest.mark.parametrize("server", [MAIN], indirect=True)
def test_default(server: ConnectorServer, texts: Texts) -> None:
    moved = ask_moved(server, texts, "settings-moved")
    assert moved.outcome == REUSED
    assert moved.semblend["computed_tokens"] > 0, "the holes of the claimed range are computed by the adapter"
    copy = ask_edited(server, texts, "settings-edited", DOCUMENT_TOKENS, 40, attempts=FEW_ATTEMPTS)
    assert copy.reused_tokens == 0
    assert copy.semblend["reason"] in {"no_candidate", "not_token_identical"}


@nightly
@pytest.mark.parametrize("server", [DISABLED], indirect=True)
def test_enabled_0_declines_every_look_up(server: ConnectorServer, texts: Texts) -> None:
    document = texts.passage(0, DOCUMENT_TOKENS)
    for prompt in (document, texts.question(document, opening(41))):
        reply = server.client.ask(Ask(prompt, salt="settings", capture=True))
        assert (reply.outcome, reply.semblend["reason"]) == ("cold_fallback", "disabled")
    again = server.client.ask(Ask(document, salt="settings"))
    assert again.cached_tokens == DOCUMENT_TOKENS // 128 * 128, "the engine's own cache works on"
    assert not [event for event in server.events() if isinstance(event, Materialized)]


@nightly
@pytest.mark.parametrize("server", [SUGGESTING], indirect=True)
def test_discovery_only_1_reports_and_never_plans(server: ConnectorServer, texts: Texts) -> None:
    moved = ask_moved(server, texts, "settings")
    assert (moved.outcome, moved.semblend["reason"]) == ("semantic_discovery_only", "discovery_only")
    assert moved.reused_tokens == moved.cached_tokens == 0
    assert "tokens" in {found["source"] for found in moved.semblend["discoveries"]}
    assert not [event for event in server.events() if isinstance(event, Materialized)]


@nightly
@pytest.mark.usefixtures("semantic_path")
@pytest.mark.parametrize("server", [SUGGESTING], indirect=True)
def test_embedder_suggests_donors_that_tokens_do_not_find(server: ConnectorServer, texts: Texts) -> None:
    copy = ask_edited(server, texts, "settings-embedder", DOCUMENT_TOKENS, 40)
    (found, *_) = by_similarity(copy)
    assert 0.3 <= found["similarity"] < 1.0


@nightly
@pytest.mark.usefixtures("semantic_path")
@pytest.mark.parametrize("server", [FRAGMENTS], indirect=True)
def test_exact_materialization_only_0_plans_fragments(server: ConnectorServer, texts: Texts) -> None:
    copy = ask_edited(server, texts, "settings-fragments", DOCUMENT_TOKENS, 40, until=lambda reply: reply.reused_tokens)
    assert copy.outcome == REUSED
    runs = copy.semblend["runs"]
    assert runs
    assert max(run["length"] for run in runs) < 64


@nightly
@pytest.mark.usefixtures("semantic_path")
@pytest.mark.parametrize("server", [FRAGMENTS], indirect=True)
def test_fuzzy_chunks_1_reach_where_edit_scripts_are_too_dear(server: ConnectorServer, texts: Texts) -> None:
    least = LONG_TOKENS // 4
    copy = ask_edited(server, texts, "settings-fuzzy", LONG_TOKENS, 30, until=lambda reply: reply.reused_tokens > least)
    assert copy.outcome == REUSED
    assert copy.reused_tokens > least


@nightly
@pytest.mark.usefixtures("semantic_path")
@pytest.mark.parametrize("server", [SUGGESTING], indirect=True)
def test_fuzzy_chunks_0_do_not(server: ConnectorServer, texts: Texts) -> None:
    copy = ask_edited(server, texts, "settings-fuzzy", LONG_TOKENS, 30)
    found = int(copy.semblend["detail"].split()[0]) if copy.semblend["detail"] else 0
    assert found < LONG_TOKENS // 4


@nightly
@pytest.mark.usefixtures("semantic_path")
@pytest.mark.parametrize("server", [SEGMENTS], indirect=True)
def test_min_similarity_1_considers_no_edited_copy(server: ConnectorServer, texts: Texts) -> None:
    copy = ask_edited(server, texts, "settings-similarity", DOCUMENT_TOKENS, 40, attempts=FEW_ATTEMPTS)
    assert (copy.outcome, copy.semblend["reason"]) == ("cold_fallback", "no_candidate")
    assert copy.semblend["discoveries"] == []


@nightly
@pytest.mark.parametrize("server", [SEGMENTS], indirect=True)
def test_strict_prefix_boundary_0_computes_no_holes(server: ConnectorServer, texts: Texts) -> None:
    """This engine cannot be given runs alone, so only those that continue the exact prefix are claimed."""
    moved = ask_moved(server, texts, "settings")
    assert moved.reused_tokens == 0
    assert moved.semblend["computed_tokens"] == 0
    client = server.client
    document = texts.passage(0, DOCUMENT_TOKENS)
    client.reset()
    continued = client.ask(Ask(texts.question(document), salt="settings", capture=False))
    assert continued.outcome == REUSED
    assert continued.semblend["computed_tokens"] == 0
    assert continued.cached_tokens == continued.reused_tokens >= DOCUMENT_TOKENS
