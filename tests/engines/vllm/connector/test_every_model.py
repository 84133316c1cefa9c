"""On each real model: the self-test passes, a moved document is reused, and the answer is close to the cold one."""

from __future__ import annotations

from statistics import mean

import pytest
from benchmarks.vllm.quality import divergence
from tests.engines.vllm.connector.client import Ask, Reply
from tests.engines.vllm.connector.connector_server import ConnectorServer
from tests.engines.vllm.connector.kinds import GEMMA, MAIN, QWEN
from tests.engines.vllm.connector.prompts import Texts, opening

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.parametrize("server", [MAIN, QWEN, GEMMA], indirect=True),
]

ANSWER = {"logprobs": 20}
DOCUMENTS, TOKENS = 2, 400


def distance(cold: Reply, other: Reply) -> float:
    """Mean KL over the positions at which both have seen the same tokens; the first is always one."""
    same = next((n for n, pair in enumerate(zip(cold.tokens, other.tokens, strict=True)) if len(set(pair)) > 1), 7)
    return mean(divergence(a, b)[0] for a, b in zip(cold.top[: same + 1], other.top[: same + 1], strict=True))


def test_a_moved_document_is_reused_and_read_almost_as_if_computed(server: ConnectorServer, texts: Texts) -> None:
    assert server.log.count("SemBlend is ready: self-test passed") == 1
    client, first = server.client, texts.first
    moved, absent = [], []
    for number in range(DOCUMENTS):
        salt = f"moved-{number}"
        document = texts.passage(9000 * number, TOKENS)
        donor = [*first, *texts.encode(opening(200 + number)), *document]
        server.wait_for_donor(client.ask(Ask(donor, salt=salt)))
        head = [*first, *texts.encode(f"{opening(300 + number)}The text has been shortened here and there.\n\n")]
        recipient = texts.question([*head, *document])
        without = texts.question(head)
        blended = client.ask(Ask(recipient, max_tokens=8, salt=salt, capture=False, more=ANSWER))
        assert blended.outcome == "backend_materialized_reuse"
        assert blended.cached_tokens == blended.reused_tokens == blended.kept_tokens > TOKENS * 3 // 4
        cold, blind = (
            client.ask(Ask(prompt, max_tokens=8, salt=f"{salt}-cold", reuse=False, capture=False, more=ANSWER))
            for prompt in (recipient, without)
        )
        assert cold.cached_tokens == 0
        moved.append(distance(cold, blended))
        absent.append(distance(cold, blind))
    print(f"{client.model.title}: KL of the blend {mean(moved):.4f}, without the document {mean(absent):.3f}")
    assert mean(moved) < mean(absent) / 4
