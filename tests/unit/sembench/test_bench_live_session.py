"""One item against a recorded server: what is sent in which order, and what is not sent when its preparation failed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sembase.errors import ConfigurationError
from sembench.gates.row_laws import row_failures
from sembench.http.reply import LiveReply
from sembench.http.request import LiveRequest
from sembench.live import engine as engine_module
from sembench.live.engine import ConnectorAudit, Resets, route_of
from sembench.live.item_row import PromptSizes, answered, arm_row
from sembench.live.options import LiveOptions, LiveRun
from sembench.live.session import LostConnectionError, RequestBuilder, Session, live_units
from sembench.manifest import DonorPrompt, WorkloadItem
from sembench.metrics.rows import RequestRow
from semblend.contract import DonorRegistered, Event, EventLine, LoadAdvertised, Materialized, encode_line

ITEM = WorkloadItem(
    item_id="i1",
    dataset="d",
    source_id="s",
    transform="cross_tenant",
    recipient_prompt="the recipient",
    donor_prompts=(DonorPrompt("d1", "first"), DonorPrompt("d2", "second", metadata={"tenant": "other"})),
    answers=("a ferry",),
    metadata={"tenant": "own", "template": "t9"},
)


class Recorder:
    """Answers as told and keeps, in order, what it was asked and which resets came."""

    def __init__(self, **replies: dict[str, Any]) -> None:
        self.replies = replies
        self.asked: list[LiveRequest] = []
        self.log: list[str] = []
        self.resets: dict[str, list[tuple[int, bytes]]] = {}

    async def ask(self, request: LiveRequest) -> LiveReply:
        self.asked.append(request)
        self.log.append(request.request_id)
        values: dict[str, Any] = {"status": "ok", "ttft_ms": 5.0, "text": "a ferry", "prompt_tokens": 64}
        return LiveReply(
            request.request_id, **{**values, "cached_tokens": 0, **self.replies.get(request.request_id, {})}
        )

    async def post(self, url_or_path: str) -> tuple[int, bytes]:
        self.log.append(url_or_path)
        reported = self.resets.get(url_or_path)
        return reported.pop(0) if reported else (200, b"")

    def by_id(self, request_id: str) -> LiveRequest:
        return next(request for request in self.asked if request.request_id == request_id)


def session(
    server: Recorder, *, by_tenant: bool = False, audit: ConnectorAudit | None = None, **options: Any
) -> Session:
    chosen = LiveOptions(**{"arms": "paired", **options})

    async def poke() -> object:
        return await server.ask(LiveRequest("poke", "x", 1, "m"))

    return Session(
        server,
        server,
        RequestBuilder(chosen, "m", by_tenant=by_tenant),
        Resets(server, () if by_tenant else ("/all",), poke),
        Resets(server, () if by_tenant else ("/exact",), poke),
        PromptSizes(None, chosen.block_size),
        chosen,
        audit,
    )


def measured(server: Recorder, item: WorkloadItem = ITEM, **options: Any) -> RequestRow:
    return asyncio.run(session(server, **options).measure(item))


COLD = ["/all", "cold.i1"]
WARM = ["/all", "donor.d1", "donor.d2", "/exact", "i1"]


def test_both_orders_of_arms_occur_and_the_seed_decides() -> None:
    seen = set()
    for seed in range(20):
        server = Recorder()
        row = measured(server, seed=seed)
        assert row.pair is not None
        assert server.log == (WARM + COLD if row.pair.warm_first else COLD + WARM)
        seen.add(row.pair.warm_first)
        again = measured(Recorder(), seed=seed)
        assert again.pair == row.pair
    assert seen == {True, False}


def test_ids_tenants_and_templates_are_the_manifests() -> None:
    server = Recorder()
    measured(server, tenant="default")
    assert {request.request_id: request.tenant for request in server.asked} == {
        "cold.i1": "own",
        "i1": "own",
        "donor.d1": "own",
        "donor.d2": "other",
    }
    assert {request.template for request in server.asked} == {"t9"}
    bare = Recorder()
    measured(bare, replace(ITEM, metadata={}), tenant="default", template="t0")
    assert bare.by_id("i1").tenant == "default"
    assert bare.by_id("i1").template == "t0"


def test_without_resets_each_arm_has_tenants_of_its_own() -> None:
    server = Recorder()
    row = measured(server, by_tenant=True)
    tenants = {request.request_id: request.tenant for request in server.asked}
    assert tenants["cold.i1"] != tenants["i1"]
    assert tenants["donor.d1"] == tenants["i1"]
    assert tenants["donor.d2"] != tenants["i1"]
    assert row.tenant == "own"
    again = Recorder()
    measured(again, by_tenant=True)
    assert again.by_id("i1").tenant != tenants["i1"], "a second run must not find what the first left"


def test_a_cold_arm_with_more_than_a_block_cached_is_contaminated() -> None:
    for cached, contaminated in ((16, False), (17, True), (None, None)):
        row = measured(Recorder(**{"cold.i1": {"cached_tokens": cached}}))
        assert row.cold is not None
        assert row.cold.contaminated is contaminated
        assert row.warm is not None
        assert row.warm.contaminated is None


def test_a_reset_that_says_no_is_repeated_and_then_believed() -> None:
    server = Recorder()
    server.resets["/all"] = [(200, b'{"success": false}')] * 2
    row = measured(server, arms="cold")
    assert server.log == ["/all", "/all", "/all", "cold.i1"]
    assert row.cold is not None
    assert row.cold.status == "ok"


@pytest.mark.parametrize("answer", [(200, b'{"success": false}'), (503, b""), (400, b"busy")])
def test_an_arm_whose_reset_never_succeeds_is_not_asked(
    answer: tuple[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks_at_the_clock = itertools.count()  # each a second later than the one before
    monkeypatch.setattr(engine_module, "time", SimpleNamespace(monotonic=lambda: next(looks_at_the_clock)))
    server = Recorder()
    server.resets["/all"] = [answer] * 1000
    chosen = session(server, arms="cold")
    row = asyncio.run(chosen.measure(ITEM))
    assert row.cold is not None
    assert row.cold.status == "reset_failed"
    assert row.cold.ttft_ms is None
    assert "cold.i1" not in server.log
    assert "poke" in server.log, "an idle engine lets go of blocks only when it takes a step"
    assert chosen.preparation.failed_resets == 1


def test_a_missing_reset_is_final_and_reported_before_the_run() -> None:
    server = Recorder()
    server.resets["/all"] = [(404, b"")] * 9
    with pytest.raises(ConfigurationError, match="VLLM_SERVER_DEV_MODE"):
        asyncio.run(session(server).resets.require("--reset-url"))
    assert server.log == ["/all"]


def test_a_recipient_whose_donor_failed_is_not_asked() -> None:
    server = Recorder(**{"donor.d1": {"status": "http_400"}})
    row = measured(server, arms="warm")
    assert row.warm is not None
    assert row.warm.status == "donor_http_400"
    assert server.log == ["/all", "donor.d1"]
    assert row.quality_pass is None


@pytest.mark.parametrize("name", ["cold.i1", "donor.d1", "i1"])
def test_a_server_that_is_gone_gives_no_row(name: str) -> None:
    with pytest.raises(LostConnectionError):
        measured(Recorder(**{name: {"status": "connection", "detail": "refused"}}))


def test_quality_and_flips_with_known_answers() -> None:
    row = measured(Recorder(i1={"text": "an anchor"}))
    assert row.quality_pass is False
    assert row.cold is not None
    assert row.cold.exact_match is True
    assert row.pair is not None
    assert row.pair.answer_flip is True


@pytest.mark.parametrize(
    ("cold", "warm", "flipped"),
    [
        ("a tug boat", "no no no no", True),  # both wrong, and another answer
        ("a tug boat", "a tug boat", False),
        ("", "no no no no", True),
        ("a tug boat", "", True),
        ("", " ", False),
        ("a ferry", "the ferry: a ferry it is", False),  # both right, in other words
    ],
)
def test_a_wrong_answer_that_becomes_another_wrong_one_is_a_flip(cold: str, warm: str, flipped: bool) -> None:
    row = measured(Recorder(**{"i1": {"text": warm}, "cold.i1": {"text": cold}}))
    assert row.pair is not None
    assert row.pair.answer_flip is flipped


def test_an_items_own_score_decides() -> None:
    metadata = {"tenant": "own", "score": "digits", "stale_answer": "11"}
    item = replace(ITEM, answers=("12",), metadata=metadata)
    row = measured(Recorder(**{"i1": {"text": " 11, not 12"}, "cold.i1": {"text": "12 it is"}}), item)
    assert row.cold is not None
    assert row.warm is not None
    assert row.warm.token_recall == 1.0, "words alone would call it right"
    assert (row.cold.answer_read, row.cold.answer_right, row.cold.answer_stale) == ("12", True, False)
    assert (row.warm.answer_read, row.warm.answer_score, row.warm.answer_stale) == ("11", 0.0, True)
    assert row.quality_pass is False
    assert row.pair is not None
    assert row.pair.answer_flip is True
    assert list(row_failures(row, 16, 0.6)) == []
    assert list(row_failures(replace(row, quality_pass=True, warm=replace(row.warm, token_recall=0.1)), 16, 0.6))


def test_tools_are_sent_with_chat_requests_only() -> None:
    tools = [{"type": "function", "function": {"name": "book"}}]
    others = [{"type": "function", "function": {"name": "pay"}}]
    donors = (ITEM.donor_prompts[0], replace(ITEM.donor_prompts[1], metadata={"tools": others}))
    item = replace(ITEM, donor_prompts=donors, metadata={"tools": tools})
    server = Recorder()
    measured(server, item)
    sent = {request.request_id: request.extra.get("tools") for request in server.asked}
    assert sent == {"cold.i1": tools, "i1": tools, "donor.d1": tools, "donor.d2": others}
    plain = Recorder()
    measured(plain, item, endpoint="completions")
    assert [request.extra for request in plain.asked] == [{}] * 4


def test_quality_without_answers_is_measured_by_the_cold_one() -> None:
    bare = replace(ITEM, answers=())
    kept = measured(Recorder(), bare)
    assert kept.quality_pass is True
    assert kept.cold is not None
    assert kept.cold.f1 is None
    lost = measured(Recorder(i1={"text": "storm at sea"}), bare)
    assert lost.quality_pass is False
    assert lost.pair is not None
    assert lost.pair.answer_flip is True
    alone = measured(Recorder(), bare, arms="warm")
    assert alone.quality_pass is None


def test_a_failed_arm_makes_no_comparison() -> None:
    row = measured(Recorder(i1={"status": "timeout", "ttft_ms": None}))
    assert row.pair is not None
    assert row.pair.answer_flip is None
    assert row.pair.mean_kl is None
    assert row.quality_pass is None


class Engine:
    """Writes the event file as an engine would, when it is asked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = 0

    def tell(self, *events: Event) -> None:
        with self.path.open("a") as stream:
            for event in events:
                stream.write(encode_line(EventLine(event, "vllm", self.number, 1.0)) + "\n")
                self.number += 1


class Telling(Recorder):
    def __init__(self, on_ask: Callable[[str], None], **replies: dict[str, Any]) -> None:
        super().__init__(**replies)
        self._on_ask = on_ask

    async def ask(self, request: LiveRequest) -> LiveReply:
        self._on_ask(request.request_id)
        return await super().ask(request)


def audited(
    tmp_path: Path, on_ask: Callable[[Engine, str], None], before: list[Event] | None = None, **options: Any
) -> tuple[RequestRow, Recorder, Session]:
    engine = Engine(tmp_path / "events.jsonl")
    engine.tell(*(before or []))
    server = Telling(lambda name: on_ask(engine, name), **options.pop("replies", {}))

    async def poke() -> object:
        return await server.ask(LiveRequest("poke", "x", 1, "m"))

    audit = ConnectorAudit((engine.path,), 0.6, poke)
    chosen = session(server, audit=audit, **{"arms": "warm", **options})
    row = asyncio.run(chosen.measure(ITEM))
    audit.close()
    return row, server, chosen


def reuse(engine: Engine, name: str) -> None:
    if name.startswith("donor."):
        engine.tell(DonorRegistered(f"chatcmpl-{name}-0badcafe", "x", "ns", 100))
    if name == "i1":
        engine.tell(
            LoadAdvertised("chatcmpl-i1-0badcafe", ("x",), 48, 16),
            Materialized("chatcmpl-i1-0badcafe", ("x",), 40, 8, 1),
        )


def test_confirmed_blocks_are_the_backends_word(tmp_path: Path) -> None:
    row, server, chosen = audited(tmp_path, reuse)
    assert row.backend is not None
    assert (row.backend.reused_tokens, row.backend.boundary) == (40, 16)
    assert row.backend_confirmed_blocks == 2
    assert "poke" not in server.log
    assert chosen.preparation.unregistered_donors == 0


def test_what_an_earlier_run_left_in_the_file_is_not_ours(tmp_path: Path) -> None:
    old: list[Event] = [
        Materialized("chatcmpl-i1-deadbeef", ("x",), 60, 0, 1),
        DonorRegistered("chatcmpl-donor.d1-deadbeef", "x", "ns", 9),
    ]
    row, _, chosen = audited(tmp_path, lambda engine, name: None, before=old)
    assert row.backend is None
    assert row.backend_confirmed_blocks is None
    assert chosen.preparation.unregistered_donors == 2


def test_a_file_without_a_writer_is_not_waited_for(tmp_path: Path) -> None:
    async def poke() -> None: ...

    audit = ConnectorAudit((tmp_path / "nowhere.jsonl",), 3_600.0, poke)
    audit.expect(("donor.d1", "i1"))
    assert asyncio.run(audit.unregistered(("donor.d1",))) == {"donor.d1"}
    assert asyncio.run(audit.outcome_of("i1")) is None


def test_behind_a_router_the_engine_that_served_a_request_speaks_for_it(tmp_path: Path) -> None:
    engines = [Engine(tmp_path / f"events-{number}.jsonl") for number in range(2)]
    turns = iter(range(100))
    waiting: list[str] = []

    def routed(name: str) -> None:
        engine = engines[next(turns) % 2]
        if name == "poke":
            if engine is engines[0]:  # only a step of its own engine makes a donor known
                for donor in waiting:
                    reuse(engine, donor)
                waiting.clear()
        elif name.startswith("donor."):
            waiting.append(name)
        else:
            reuse(engines[1], name)

    server = Telling(routed)

    async def poke() -> object:
        return await server.ask(LiveRequest("poke", "x", 1, "m"))

    engines[1].tell(DonorRegistered("chatcmpl-other-0badcafe", "y", "ns", 9))
    audit = ConnectorAudit([engine.path for engine in engines], 5.0, poke)
    engines[1].tell(DonorRegistered("chatcmpl-another-0badcafe", "z", "ns", 9))
    chosen = session(server, audit=audit, arms="warm")
    row = asyncio.run(chosen.measure(ITEM))
    audit.close()
    assert row.backend is not None
    assert row.backend.reused_tokens == 40
    assert chosen.preparation.unregistered_donors == 0
    assert server.log.count("poke") == 2, "each engine had its turn"


@pytest.mark.parametrize("poll_s", [0.01, 1.0], ids=["as polled", "polled later than the wait ends"])
def test_an_idle_engine_is_poked_until_it_registers(
    poll_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "_POLL_S", poll_s)
    waiting: list[str] = []

    def lazy(engine: Engine, name: str) -> None:
        for earlier in waiting:
            engine.tell(DonorRegistered(f"cmpl-{earlier}-0-0badcafe", "x", "ns", 100))
        waiting.clear()
        if name.startswith("donor."):
            waiting.append(name)

    _, server, chosen = audited(tmp_path, lazy)
    assert server.log.index("poke") < server.log.index("/exact")
    assert chosen.preparation.unregistered_donors == 0


def test_a_promise_that_was_never_confirmed_is_not_zero_and_not_reuse(tmp_path: Path) -> None:
    def promise(engine: Engine, name: str) -> None:
        if name == "i1":
            engine.tell(LoadAdvertised("i1", ("x",), 48, 16))

    row, _, _ = audited(tmp_path, promise)
    assert row.backend is not None
    assert row.backend.reused_tokens is None
    assert row.backend_confirmed_blocks is None


@pytest.mark.parametrize(("cached", "propagated"), [(0, 0), (16, 0), (64, 48), (None, None)])
def test_propagation_is_what_the_exact_cache_has_beyond_the_boundary(
    tmp_path: Path, cached: int | None, propagated: int | None
) -> None:
    replies = {"probe.i1": {"cached_tokens": cached}}
    row, server, _ = audited(tmp_path, reuse, replies=replies, check_propagation=1.0)
    assert row.backend is not None
    assert row.backend.propagated_tokens == propagated
    hints = server.by_id("probe.i1").hints
    assert hints == {"reuse": False, "capture": False}


def test_only_blended_items_are_probed_and_only_if_asked_for(tmp_path: Path) -> None:
    _, server, _ = audited(tmp_path, reuse)
    assert "probe.i1" not in server.log
    _, server, _ = audited(tmp_path, lambda engine, name: None, check_propagation=1.0)
    assert "probe.i1" not in server.log


def test_a_backends_word_in_the_reply_counts_where_no_audit_is_read() -> None:
    reported = {
        "outcome": "backend_materialized_reuse",
        "reused_tokens": 33,
        "runs": [{}, {}],
        "exact_prefix_tokens": 0,
    }
    row = measured(Recorder(i1={"backend": reported}), arms="warm")
    assert row.backend is not None
    assert (row.backend.reused_tokens, row.backend.runs, row.backend_confirmed_blocks) == (33, 2, 2)
    none = measured(Recorder(i1={"backend": {"cached_tokens": 4}}), arms="warm")
    assert none.backend is None


def test_half_a_surrogate_pair_can_be_written() -> None:
    row = arm_row(answered(LiveReply("i1", "ok", text="x\ud800y")), None, None)
    assert row.text == "x?y"


@pytest.mark.parametrize(
    ("headers", "outcome"),
    [
        ({"x-route": "semantic"}, "semantic_placement"),
        ({"x-route": "cold", "x-semblend-routing-path": "Exact"}, "exact_route"),
        ({"x-gateway-route": "fail_open"}, "error_fallback"),
        ({"x-semantic-route": " "}, None),
        ({}, None),
    ],
)
def test_routes(headers: dict[str, str], outcome: str | None) -> None:
    assert route_of(headers).outcome == outcome


def test_route_figures_out_of_range_are_not_measured() -> None:
    assert route_of({"x-semblend-routing-similarity": "0.75"}).similarity == 0.75
    for text in ("-0.5", "nan", "much"):
        assert route_of({"x-semblend-routing-similarity": text}).similarity is None


def live_run(tmp_path: Path, **values: Any) -> LiveRun:
    options = LiveOptions(**values.pop("options", {}))
    return LiveRun(
        kind="live_gateway",
        manifest=tmp_path / "m",
        output=tmp_path / "r",
        base_url="http://x",
        options=options,
        **values,
    )


@pytest.mark.parametrize(
    ("values", "refused"),
    [
        ({"options": {"arms": "paired", "concurrency": 2}, "reset_urls": ("/r",)}, True),
        ({"options": {"arms": "paired", "concurrency": 2}, "recipient_reset_urls": ("/r",)}, True),
        ({"options": {"arms": "paired", "concurrency": 2}}, False),
        ({"options": {"concurrency": 2, "reset_per_item": False}, "reset_urls": ("/r",)}, False),
        ({"options": {"concurrency": 2, "check_propagation": 0.5}, "connector_audit": (Path("e"),)}, True),
        ({"options": {"arms": "cold", "check_propagation": 0.5}, "connector_audit": (Path("e"),)}, True),
        ({"options": {"check_propagation": 0.5}}, True),
        ({"options": {"check_propagation": 0.5}, "connector_audit": (Path("e"),)}, False),
        ({"options": {"arms": "paired"}, "reset_urls": ("/r",)}, False),
    ],
)
def test_what_cannot_be_measured_is_refused(tmp_path: Path, values: dict[str, Any], refused: bool) -> None:
    run = live_run(tmp_path, **values)
    if refused:
        with pytest.raises(ConfigurationError, match=r"concurrency|cold run|connector-audit"):
            run.require_valid()
    else:
        run.require_valid()


def test_a_stream_that_continues_sends_its_beginning_again() -> None:
    members = [replace(ITEM, item_id=f"s{i}", metadata={"stream": True, "stream_id": "q"}) for i in range(4)]
    units = live_units([ITEM, *members], {"s0", "s1"}, streams_apart=True)
    assert [[item.item_id for item in unit.items] for unit in units] == [["i1"], ["s2", "s3"]]
    assert [item.item_id for item in units[1].earlier] == ["s0", "s1"]
    assert live_units(members, {item.item_id for item in members}, streams_apart=True) == []
    assert len(live_units(members, {"s0"}, streams_apart=False)) == 3
