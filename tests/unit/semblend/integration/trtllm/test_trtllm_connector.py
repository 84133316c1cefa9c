from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.unit.semblend.integration.trtllm.engine_shape import Request, arguments

from sembench.engine_events.summarize import summarize
from semblend.contract import decode_line
from semblend.integration.trtllm.connector import SemBlendConnectorScheduler, SemBlendConnectorWorker
from semblend.integration.trtllm.options import WHERE


def words(seed: int, length: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(0, 50_000, length)]


DOCUMENT = words(1, 800)


class Served:
    """A connector with options, and what it wrote."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, args: Any = None, **options: Any) -> None:
        self.audit_file, self.events_file = folder / "audit.jsonl", folder / "events.jsonl"
        patch.setenv(WHERE, json.dumps({"audit": str(self.audit_file), "events": str(self.events_file), **options}))
        self.scheduler = SemBlendConnectorScheduler(args or arguments(folder / "model"))
        self._serial = 0

    def serve(self, tokens: list[int], salt: str | None = None, request: Any = None) -> None:
        """From look-up to end, as the engine calls them. Nothing may be claimed."""
        self._serial += 1
        request = request or Request(self._serial, tokens, salt)
        assert self.scheduler.get_num_new_matched_tokens(request, 0) == (0, False)
        self.scheduler.update_state_after_alloc(request, [3, 4])
        assert self.scheduler.build_connector_meta(SimpleNamespace()) is None
        assert self.scheduler.request_finished(request, [3, 4]) is False

    def audit(self, event: str) -> list[dict[str, Any]]:
        records = [json.loads(line) for line in self.audit_file.read_text().splitlines()]
        return [record for record in records if record["event"] == event]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    made = Served(tmp_path, monkeypatch)
    with closing(made.scheduler):
        yield made


def test_it_finds_and_reports_and_claims_nothing(served: Served) -> None:
    served.serve(words(2, 40) + DOCUMENT)
    served.serve(words(3, 56) + DOCUMENT + words(4, 30))
    first, last = served.audit("lookup")
    assert (first["found"], first["rejection_reason"]) == (False, "no_candidate")
    assert (last["found"], last["rejection_reason"]) == (True, "discovery_only")
    assert last["reusable_tokens"] >= 700
    assert served.audit("declined")[-1]["reason"] == "discovery_only"


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("a", None), (None, "a"), ("", None)])
def test_another_tenants_donor_is_not_there(served: Served, first: str | None, second: str | None) -> None:
    served.serve(DOCUMENT, first)
    served.serve(DOCUMENT + words(3, 40), second)
    assert served.audit("lookup")[-1]["found"] is False
    served.serve(DOCUMENT + words(4, 40), first)
    assert served.audit("lookup")[-1]["found"] is True


def test_a_prompt_that_brings_little_new_is_no_donor(served: Served) -> None:
    served.serve(DOCUMENT)
    served.serve(DOCUMENT + words(3, 40))
    served.serve(words(4, 60))
    assert len(served.audit("donor_registered")) == len(served.scheduler.search.donor_ids()) == 1


def test_a_request_that_tells_no_salt_is_nobodys(served: Served) -> None:
    served.serve([], request=SimpleNamespace(request_id=7, lora_task_id=None, get_tokens=lambda beam: DOCUMENT))
    assert served.audit("lookup")[-1]["rejection_reason"] == "namespace_unknown"
    assert not served.scheduler.search.donor_ids()


def test_a_request_with_an_image_is_neither_looked_up_nor_a_donor(served: Served) -> None:
    request = SimpleNamespace(
        request_id=7, cache_salt=None, lora_task_id=None, multimodal_hashes=["x"], get_tokens=lambda beam: DOCUMENT
    )
    served.serve([], request=request)
    assert served.audit("lookup")[-1]["rejection_reason"] == "unsupported_mode"
    assert not served.scheduler.search.donor_ids()


def test_a_model_whose_rotation_is_not_known_declines_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = Served(tmp_path, monkeypatch, arguments(tmp_path / "model", model="hub/name"))
    with closing(served.scheduler):
        served.serve(DOCUMENT)
        served.serve(DOCUMENT)
        assert served.audit("lookup")[-1]["rejection_reason"] == "namespace_unknown"


def test_a_fault_in_a_look_up_is_a_line_and_the_next_request_is_looked_up(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("index is damaged")

    served.serve(DOCUMENT)
    with monkeypatch.context() as patch:
        patch.setattr(served.scheduler.search._planner, "plan", broken)
        served.serve(DOCUMENT + words(3, 40))
    (fault,) = served.audit("fault_contained")
    assert "index is damaged" in fault["error"]
    served.serve(DOCUMENT + words(4, 40))
    assert served.audit("lookup")[-1]["found"] is True


def test_donors_are_bounded_by_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served(tmp_path, monkeypatch, index_bytes=1 << 20)
    with closing(served.scheduler):
        for seed in range(120):
            served.serve(words(100 + seed, 2000))
        registered, evicted = len(served.audit("donor_registered")), len(served.audit("donor_evicted"))
        assert evicted > 0
        assert len(served.scheduler.search.donor_ids()) == registered - evicted


def test_requests_whose_end_never_comes_do_not_pile_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    search = served.scheduler.search
    monkeypatch.setattr(search._records, "_max_records", 20)
    for number in range(50):
        search.look_up(Request(number, [1, 2, 3]), 0)
    assert len(search._records) == 20
    assert search.known(29) is None
    assert search.known(30) is not None


def test_the_bench_reads_the_audit_and_every_event_decodes(served: Served) -> None:
    served.serve(DOCUMENT + words(2, 20))
    served.serve(DOCUMENT + words(3, 50))
    served.serve(words(9, 300))
    served.scheduler.close()
    with served.audit_file.open(encoding="utf-8") as lines:
        summary = summarize("trtllm", lines)
    assert (summary.semantic_hits, summary.donor_registrations) == (1, 2)
    assert summary.materialized_semantic_kv_reuse is False
    events = [decode_line(line) for line in served.events_file.read_text().splitlines()]
    assert {event.engine for event in events} == {"trtllm"}


def test_the_worker_answers_every_call_and_holds_nothing_back(tmp_path: Path) -> None:
    worker = SemBlendConnectorWorker(arguments(tmp_path))
    worker.register_kv_caches(object())
    worker.register_kv_cache_layout(object())
    worker.bind_connector_meta("step")
    assert worker.get_connector_meta() == "step"
    worker.start_load_kv(None)
    worker.wait_for_layer_load(0, None)
    worker.save_kv_layer(0, None)
    worker.wait_for_save(None)
    worker._clear_connector_meta()
    assert worker.get_connector_meta() is None
    assert worker.get_finished([1], [2]) == ([1], [2])
