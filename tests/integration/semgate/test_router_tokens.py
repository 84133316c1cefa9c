"""Chats become token ids on the way: by the model's own files, or by asking an engine; else they go by load alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.kv_publisher import KvPublisher
from tests.fakes.model_folder import text_of, write_model_folder
from tests.fakes.raw_client import Reply, ask
from tests.fakes.router_rig import Rig, router_rig
from tests.waiting import PATIENCE_S

from sembase.errors import ConfigurationError
from semgate.events.wire import BlockStored
from semgate.tokens.encoder import Encoder


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE_S))


async def talk(rig: Rig, *texts: str) -> Reply:
    roles = ("system", "user", "assistant")
    messages = [{"role": roles[number % 3], "content": text} for number, text in enumerate(texts)]
    return await ask(rig.port, body={"model": "m", "stream": True, "messages": messages})


def path_of(reply: Reply) -> str | None:
    return reply.header("x-semblend-routing-path")


def test_a_conversation_returns_to_its_prefix(tmp_path: Path) -> None:
    async def work() -> None:
        options: dict[str, Any] = {"routing_policy": "precise_prefix", "tokenizer": write_model_folder(tmp_path / "m")}
        async with router_rig(tmp_path, **options) as rig:
            first = await talk(rig, text_of(200), text_of(20, 300))
            other = await talk(rig, text_of(200, 250), text_of(20, 100))
            again = [await talk(rig, text_of(200), text_of(20, 300), text_of(9), "w1 w2") for _ in range(4)]
            assert [path_of(reply) for reply in (first, other)] == ["cold_route", "cold_route"]
            assert {path_of(reply) for reply in again} == {"exact_route"}
            home = first.header("x-semantickv-replica")
            assert {reply.header("x-semantickv-replica") for reply in again} == {home}
            assert rig.gateway.ring.latest(1)[0].exact_blocks >= 13

    run(work())


def test_the_ids_are_those_the_engine_announces(tmp_path: Path) -> None:
    """The block keys of a chat meet the blocks an engine stored for the same rendered prompt."""

    async def work() -> None:
        folder = write_model_folder(tmp_path / "m")
        rendered = f"<|turn|>system {text_of(100)}<|turn|>user w7 w8 w9<|turn|>assistant"
        ids = Encoder(folder / "tokenizer.json").encode(rendered, add_special_tokens=False).tolist()
        blocks = len(ids) // 16
        async with KvPublisher() as publisher:
            announced = {"b": f";events={publisher.endpoint};replay={publisher.replay_endpoint}"}
            options: dict[str, Any] = {
                "routing_policy": "precise_prefix",
                "tokenizer": folder,
                "tell_shared_evidence": True,
            }
            async with router_rig(tmp_path, announced=announced, **options) as rig:
                await publisher.subscribed()
                hashes: list[int | bytes] = list(range(1, blocks + 1))
                await publisher.publish([BlockStored(hashes, None, ids[: blocks * 16], 16)])
                line = f'semgate_index_blocks{{replica="b"}} {float(blocks)}'.encode()
                while line not in rig.gateway.metrics.text():
                    await asyncio.sleep(0.01)
                reply = await talk(rig, text_of(100), "w7 w8 w9")
                assert (reply.header("x-semantickv-replica"), path_of(reply)) == ("b", "exact_route")
                assert rig.gateway.ring.latest(1)[0].exact_blocks == blocks

    run(work())


def test_an_engine_is_asked_where_no_tokenizer_is_given(tmp_path: Path) -> None:
    async def work() -> None:
        async with router_rig(tmp_path, routing_policy="precise_prefix", engine_tokenize=True) as rig:
            replies = [await talk(rig, text_of(100), "w1") for _ in range(3)]
            assert [path_of(reply) for reply in replies] == ["cold_route", "exact_route", "exact_route"]
            assert b'semgate_tokenized_total{result="answered"} 3.0' in rig.gateway.metrics.text()
            for each in rig.replicas:
                each.mode = "die_after_head"  # /tokenize fails as well; the requests are placed without

            assert (await talk(rig, text_of(100), "w1")).status == 502

    run(work())


def test_without_tokens_requests_are_still_served_and_a_warning_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with router_rig(tmp_path, routing_policy="semantic_placement") as rig:
            assert path_of(await talk(rig, text_of(100), "w1")) == "cold_route"

    run(work())
    warnings = [record for record in caplog.records if "no tokenizer" in record.getMessage()]
    assert len(warnings) == 1
    assert "--tokenizer" in json.dumps(warnings[0].__dict__["fields"])


def test_a_folder_without_tokenizer_is_refused(tmp_path: Path) -> None:
    async def work() -> None:
        with pytest.raises(ConfigurationError, match=r"tokenizer\.json cannot be read"):
            async with router_rig(tmp_path, tokenizer=tmp_path / "nothing"):
                raise AssertionError("it must not start")

    run(work())
