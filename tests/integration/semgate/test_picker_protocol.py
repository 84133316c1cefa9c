"""The Endpoint Picker Protocol v1 against a real Envoy, configured as deploy/envoy has it: each MUST is a test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import PATIENCE_S

pytest.importorskip("grpc", reason="needs the extra picker")
pytest.importorskip("envoy.service.ext_proc.v3", reason="needs the extra picker")

from tests.fakes.picker_rig import Door, PickerRig, envoy_before, ext_proc_of, filters_of, needs_envoy, picker_rig
from tests.fakes.raw_client import Exchange, Reply, ask
from tests.waiting import until

from semgate.http.client_keys import ClientKeys
from semgate.picker import pick

pytestmark = needs_envoy
DOORS: tuple[Door, ...] = ("full duplex", "cheap")
BODY = {"model": "m", "stream": True, "prompt": "x"}
Act = Callable[[PickerRig], Awaitable[None]]


def run(
    folder: Path,
    door: Door,
    act: Act,
    change: Callable[[dict[str, Any]], None] | None = None,
    names: tuple[str, ...] = (),
    **settings: Any,
) -> None:
    async def work() -> None:
        async with picker_rig(folder, *names, **settings) as rig, envoy_before(rig, door, folder / "envoy", change):
            await act(rig)

    asyncio.run(asyncio.wait_for(work(), PATIENCE_S))


async def complete(rig: PickerRig, body: dict[str, Any] | None = None, **headers: str) -> Reply:
    return await ask(rig.port, "/v1/completions", body or BODY, headers=headers)


def loads(rig: PickerRig) -> dict[str, int]:
    return {each.name: each.in_flight for each in rig.gateway.roster.fleet}


def with_subset(endpoints: Sequence[str]) -> Callable[[dict[str, Any]], None]:
    """Envoy's own filter sets the hint, before the picker is called."""

    def change(config: dict[str, Any]) -> None:
        value = {"x-gateway-destination-endpoint-subset": list(endpoints)}
        metadata = [{"metadata_namespace": "envoy.lb.subset_hint", "value": value}]
        kind = "type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config"
        hint = {"name": "hint", "typed_config": {"@type": kind, "metadata": metadata}}
        filters_of(config).insert(0, hint)

    return change


@pytest.mark.parametrize("door", DOORS)
def test_the_picked_endpoint_serves_and_a_clients_own_choice_is_overwritten(tmp_path: Path, door: Door) -> None:
    async def act(rig: PickerRig) -> None:
        for _ in range(6):
            wrong = {"x-gateway-destination-endpoint": "127.0.0.1:1", "x-data-parallel-rank": "3"}
            wrong |= {"authorization": "Bearer k", "x-tenant-id": "victim"}
            reply = await ask(rig.port, "/v1/completions", BODY, headers=wrong)
            assert (reply.status, reply.complete) == (200, True)
        assert sorted(rig.seen()) == ["a"] * 3 + ["b"] * 3
        for replica in rig.replicas:
            for seen in replica.seen:
                named = dict(seen.headers)
                assert named["x-gateway-destination-endpoint"].split(",")[0] == rig.endpoint(replica.name)
                assert named.keys().isdisjoint({"x-data-parallel-rank", "authorization", "x-tenant-id"})

    run(tmp_path, door, act)


@pytest.mark.parametrize("door", DOORS)
def test_header_and_metadata_name_the_same_endpoint(tmp_path: Path, door: Door) -> None:
    """Envoy follows the metadata alone here."""

    def by_metadata(config: dict[str, Any]) -> None:
        policy = config["static_resources"]["clusters"][0]["load_balancing_policy"]["policies"][0]
        source = {"metadata": {"key": "envoy.lb", "path": [{"key": "x-gateway-destination-endpoint"}]}}
        policy["typed_extension_config"]["typed_config"]["override_host_sources"] = [source]

    async def act(rig: PickerRig) -> None:
        for _ in range(4):
            await complete(rig)
        for replica in rig.replicas:
            assert len(replica.seen) == 2
            for seen in replica.seen:
                named = dict(seen.headers)["x-gateway-destination-endpoint"]
                assert named.split(",")[0] == rig.endpoint(replica.name)

    run(tmp_path, door, act, by_metadata)


@pytest.mark.parametrize("door", DOORS)
def test_answers_are_passed_token_by_token_and_their_end_is_known(tmp_path: Path, door: Door) -> None:
    async def act(rig: PickerRig) -> None:
        (replica,) = rig.replicas
        replica.resume.clear()
        exchange = await Exchange.open(rig.port)
        await exchange.send("POST", "/v1/completions", json.dumps(BODY).encode())
        await exchange.head()
        assert await exchange.reader.read(1), "the first token, while the engine waits"
        assert loads(rig) == {"a": 1}
        replica.resume.set()
        await exchange.reader.readuntil(b"[DONE]")
        exchange.writer.transport.abort()
        await until(lambda: loads(rig) == {"a": 0})
        await until(lambda: len(rig.gateway.ring) == 1)
        (record,) = rig.gateway.ring.latest(1)
        assert (record.status, record.replica) == (200, "a")
        assert (record.cached_tokens == 4) == (door == "full duplex"), "the cheap mode does not see the usage"

    run(tmp_path, door, act, names=("a",))


@pytest.mark.parametrize("door", DOORS)
def test_a_client_that_leaves_releases_its_load(tmp_path: Path, door: Door) -> None:
    async def act(rig: PickerRig) -> None:
        rig.replicas[0].mode = rig.replicas[1].mode = "hang"
        exchange = await Exchange.open(rig.port)
        await exchange.send("POST", "/v1/completions", json.dumps(BODY).encode())
        await until(lambda: sum(loads(rig).values()) == 1)
        exchange.writer.transport.abort()
        await until(lambda: sum(loads(rig).values()) == 0)
        assert rig.gateway.ring.latest(1)[0].outcome == "client_left"

    run(tmp_path, door, act)


@pytest.mark.parametrize("door", DOORS)
def test_only_endpoints_of_the_subset_are_picked(tmp_path: Path, door: Door) -> None:
    async def work() -> None:
        async with picker_rig(tmp_path, "a", "b", "c") as rig:
            for names in (("b",), ("a", "c")):
                change = with_subset([rig.endpoint(name) for name in names])
                async with envoy_before(rig, door, tmp_path / "-".join(names), change):
                    for _ in range(4):
                        assert (await complete(rig)).status == 200
                    assert set(rig.seen()) == set(names)
                    for replica in rig.replicas:
                        for seen in replica.seen:
                            listed = dict(seen.headers)["x-gateway-destination-endpoint"].split(",")
                            assert set(listed) <= {rig.endpoint(name) for name in names}
                        replica.seen.clear()
            for index, subset in enumerate(([], ["127.0.0.1:1"])):
                async with envoy_before(rig, door, tmp_path / f"none{index}", with_subset(subset)):
                    reply = await complete(rig)
                    assert (reply.status, reply.error_code) == (503, "no_replica")
            assert rig.seen() == []

    asyncio.run(asyncio.wait_for(work(), PATIENCE_S))


@pytest.mark.parametrize("door", DOORS)
def test_without_a_ready_endpoint_503_and_beyond_a_limit_429(tmp_path: Path, door: Door) -> None:
    keys = tmp_path / "keys.toml"
    digest = "2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683"  # of "key"
    keys.write_text(f'[tenants.one]\nkeys = ["sha256:{digest}"]\nconcurrent_requests = 1\n')

    async def act(rig: PickerRig) -> None:
        assert (await complete(rig)).status == 401
        for each in rig.replicas:
            each.resume.clear()
        held = asyncio.create_task(complete(rig, authorization="Bearer key"))
        await until(lambda: sum(loads(rig).values()) == 1)
        reply = await complete(rig, authorization="Bearer key")
        assert (reply.status, reply.error_code, reply.header("retry-after")) == (429, "rate_limit_exceeded", "1")
        for each in rig.replicas:
            each.resume.set()
            rig.gateway.roster.set_draining(each.name, draining=True)
        assert (await held).status == 200
        await until(lambda: sum(loads(rig).values()) == 0)
        reply = await complete(rig, authorization="Bearer key")
        assert (reply.status, reply.error_code, reply.header("retry-after")) == (503, "no_replica", "1")
        assert len(rig.seen()) == 1

    assert ClientKeys(keys).tenant_of(((b"authorization", b"Bearer key"),)) is not None
    run(tmp_path, door, act, client_keys_file=keys)


@pytest.mark.parametrize("door", DOORS)
def test_the_data_plane_goes_down_the_list_and_reports_who_served(tmp_path: Path, door: Door) -> None:
    async def act(rig: PickerRig) -> None:
        await rig.replica("a").die()
        replies = [await complete(rig) for _ in range(4)]
        assert [reply.status for reply in replies] == [200] * 4
        assert rig.seen() == ["b"] * 4
        await until(lambda: len(rig.gateway.ring) == 4)
        assert {record.replica for record in rig.gateway.ring.latest(4)} == {"b"}, "as the data plane reported"
        await until(lambda: loads(rig) == {"a": 0, "b": 0})

    run(tmp_path, door, act)


@pytest.mark.parametrize("door", DOORS)
def test_bodies_are_salted_whole_and_refused_as_by_the_router(tmp_path: Path, door: Door) -> None:
    async def act(rig: PickerRig) -> None:
        for size in (0, 1, 70_000, 900_000):
            reply = await complete(rig, {"model": "m", "prompt": "x" * size, "cache_salt": "mine"})
            assert reply.status == 200, size
            seen = [each for replica in rig.replicas for each in replica.seen][-1]
            for replica in rig.replicas:
                replica.seen.clear()
            sent = json.loads(seen.body)
            assert len(sent["prompt"]) == size
            assert len(sent["cache_salt"]) == 64
        assert (await complete(rig, {"prompt": "x", "kv_transfer_params": {"remote_host": "h"}})).status == 400
        assert (await ask(rig.port, "/v1/responses", BODY)).error_code == "path_not_isolated"
        assert (await ask(rig.port, "/reset_prefix_cache", {})).status == 404
        assert (await complete(rig, {"prompt": "x" * 1_100_000})).status == 413
        assert (await ask(rig.port, "/v1/models", method="GET")).status == 200

    run(tmp_path, door, act, inject_cache_salt=True, max_body_bytes=1_000_000)


@pytest.mark.parametrize("door", DOORS)
def test_without_its_picker_the_data_plane_does_what_it_is_configured_to(tmp_path: Path, door: Door) -> None:
    async def work() -> None:
        async with picker_rig(tmp_path) as rig, envoy_before(rig, door, tmp_path / "envoy"):
            assert (await complete(rig)).status == 200
            await rig.stop()
            assert (await complete(rig)).status == 500
            assert len(rig.seen()) == 1

            def allow(config: dict[str, Any]) -> None:
                ext_proc_of(config)["failure_mode_allow"] = True

            async with envoy_before(rig, door, tmp_path / "open", allow):
                # In full duplex Envoy has given the body away before it learns of the failure.
                assert (await complete(rig)).status == (500 if door == "full duplex" else 200)

    asyncio.run(asyncio.wait_for(work(), PATIENCE_S))


def test_a_body_that_is_late_keeps_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pick, "BODY_SECONDS", 0.2)

    def unbuffered(config: dict[str, Any]) -> None:
        config["static_resources"]["listeners"][0]["per_connection_buffer_limit_bytes"] = 1 << 20

    async def act(rig: PickerRig) -> None:
        exchange = await Exchange.open(rig.port)
        await exchange.send("POST", "/v1/completions", b"x" * 50_000, {"content-length": "50001"})
        await until(lambda: rig.picker.bodies.held_bytes > 0)
        await until(lambda: rig.picker.bodies.held_bytes == 0)
        exchange.writer.write(b"x")
        assert (await exchange.head())[0] == 408
        exchange.writer.transport.abort()

    run(tmp_path, "full duplex", act, unbuffered)
