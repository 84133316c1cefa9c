"""LMCache's connector and ours in one vLLM server: exact repetitions are LMCache's, the rest is ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from scripts.engines.lmcache import CHUNK_TOKENS, FOLDER, lmcache_missing, start_lmcache
from scripts.engines.server import EngineServer, launch
from scripts.engines.specs import EngineOptions, vllm_missing, vllm_spec
from scripts.private_venv import ROOT
from tests.engines.vllm.connector.client import Ask, Client
from tests.engines.vllm.connector.prompts import Texts, opening, read_texts
from tests.waiting import wait_until

from semblend.contract import DonorRegistered, Event, Materialized, decode_line
from semblend.integration.vllm.flags import TRANSFER_FLAG, WORKER_FLAG, transfer_config
from semblend.integration.vllm.support import WORKER_CLASS

pytestmark = [pytest.mark.engine, pytest.mark.nightly]  # another project's wheel

TOKENS = 4 * CHUNK_TOKENS


class Both(NamedTuple):
    client: Client
    texts: Texts
    lmcache: EngineServer
    events_path: Path

    def events(self, kind: type[Event]) -> list[Event]:
        text = self.events_path.read_text() if self.events_path.exists() else ""
        found = (decode_line(line).event for line in text[: text.rfind("\n") + 1].splitlines())
        return [event for event in found if isinstance(event, kind)]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    if (missing := vllm_missing() or lmcache_missing()) is not None:
        pytest.skip(missing)
    events = tmp_path_factory.mktemp("both") / "events.jsonl"
    with start_lmcache() as lmcache:
        ours = transfer_config({"events": str(events), "capture": "all"})
        config = {
            "kv_connector": "MultiConnector",
            "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {"connectors": [lmcache.connector, ours]},
        }
        options = EngineOptions(
            extra=(
                "--enable-prompt-tokens-details",
                *(TRANSFER_FLAG, json.dumps(config), WORKER_FLAG, WORKER_CLASS),
            ),
            environment={"PYTHONPATH": f"{ROOT / 'src'}:{FOLDER}"},
            dtype="float32",
            kv_cache_gib=1,
            dev_mode=True,
            threads=1,
        )
        with launch(vllm_spec(options)) as server:
            client = Client(server.base_url)
            yield Both(client, read_texts(client), lmcache, events)


def test_a_repetition_is_served_by_lmcache_and_a_new_frame_by_us(both: Both) -> None:
    passage = both.texts.passage(0, TOKENS)
    cold = both.client.ask(Ask(passage, 4))
    wait_until(lambda: "Stored" in both.lmcache.log_path.read_text(errors="replace"), "LMCache stored nothing")
    wait_until(lambda: both.events(DonorRegistered), "ours registered no donor")

    both.client.reset()  # the engine's own cache; the connectors keep theirs
    again = both.client.ask(Ask(passage, 4))
    assert again.cached_tokens >= TOKENS - CHUNK_TOKENS
    assert again.tokens == cold.tokens
    wait_until(lambda: "Retrieved" in both.lmcache.log_path.read_text(errors="replace"), "LMCache loaded nothing")
    assert not both.events(Materialized)

    both.client.reset()
    framed = both.client.ask(Ask(both.texts.question(passage, opening(7)), 4))
    wait_until(lambda: both.events(Materialized), "ours confirmed nothing")
    (reused,) = both.events(Materialized)
    assert isinstance(reused, Materialized)
    assert reused.request_id.startswith(framed.request_id)
    assert reused.reused_tokens >= 0.8 * TOKENS
