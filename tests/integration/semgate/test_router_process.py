"""The command as a process: replicas really killed, signals, reloads, a restart, `explain` from what it left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from scripts.engines.ports import free_port
from tests.fakes.fault_replica import replica_process
from tests.fakes.raw_client import Exchange, Reply, ask, chat
from tests.fakes.router_process import SRC, RouterProcess, router_process
from tests.waiting import PATIENCE_S, wait_until


def say(port: int, text: str = "hi", request_id: str | None = None, **more: object) -> Reply:
    headers = {} if request_id is None else {"x-request-id": request_id}
    return asyncio.run(asyncio.wait_for(ask(port, body=chat(text, **more), headers=headers), PATIENCE_S))


def semgate(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "semgate", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_a_replica_killed_in_mid_stream(tmp_path: Path) -> None:
    with ExitStack() as stack:
        victim, first = stack.enter_context(replica_process(name="a", tokens=1_000))
        _, second = stack.enter_context(replica_process(name="b", tokens=3, itl_ms=1.0))
        replicas = f"http://127.0.0.1:{first};name=a,http://127.0.0.1:{second};name=b"
        flags = ("--replicas", replicas, "--routing-policy", "round_robin", "--health-seconds", "0")
        router = stack.enter_context(router_process(tmp_path, *flags))

        async def cut() -> Reply:
            exchange = await Exchange.open(router.port)
            await exchange.send("POST", "/v1/chat/completions", json.dumps(chat()).encode(), {"x-request-id": "cut-1"})
            status, headers = await exchange.head()
            assert dict(headers)["x-semantickv-replica"] == "a"
            seen = await exchange.first_chunk()
            victim.kill()
            reply = await exchange.rest(status, headers, seen)
            assert await exchange.is_closed()
            await exchange.close()
            return reply

        reply = asyncio.run(asyncio.wait_for(cut(), PATIENCE_S))
        assert not reply.complete
        assert reply.error_code == "replica_lost"
        assert all(say(router.port).events[-1] == "[DONE]" for _ in range(4))
        router.process.send_signal(signal.SIGTERM)
        assert router.end() == 0
    result = semgate(tmp_path, "explain", "cut-1")
    assert result.returncode == 0, result.stderr
    assert "placed on   a by round_robin" in result.stdout
    assert "died after the first byte" in result.stdout


def test_sigterm_lets_open_streams_end(tmp_path: Path) -> None:
    with ExitStack() as stack:
        _, port = stack.enter_context(replica_process(tokens=20, itl_ms=20.0))
        flags = ("--replicas", f"http://127.0.0.1:{port}", "--shutdown-seconds", str(PATIENCE_S))
        router = stack.enter_context(router_process(tmp_path, *flags))

        async def drained() -> Reply:
            exchange = await Exchange.open(router.port)
            await exchange.send("POST", "/v1/chat/completions", json.dumps(chat()).encode())
            status, headers = await exchange.head()
            seen = await exchange.first_chunk()
            router.process.send_signal(signal.SIGTERM)
            reply = await exchange.rest(status, headers, seen)
            await exchange.close()
            return reply

        reply = asyncio.run(asyncio.wait_for(drained(), PATIENCE_S))
        assert reply.complete
        assert reply.events[-1] == "[DONE]"
        assert router.end() == 0
        with pytest.raises(ConnectionError):
            say(router.port)


def test_ctrl_c_is_a_clean_end_and_a_port_in_use_the_environments_fault(tmp_path: Path) -> None:
    with router_process(tmp_path, "--replicas", "http://127.0.0.1:9") as router:
        other = semgate(tmp_path, "router", "--replicas", "http://127.0.0.1:9", "--port", str(router.port))
        assert other.returncode == 3
        (line,) = other.stderr.splitlines()
        assert "in use" in line
        assert line.endswith("choose another with --port")
        router.process.send_signal(signal.SIGINT)
        assert router.end() == 0
    assert "stopped by SIGTERM or Ctrl-C" in semgate(tmp_path, "--help").stdout.replace("\n", " ")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--routing-policy", "nearest"), "nearest"),
        (("--tokenizer", "nowhere"), "--tokenizer nowhere: nowhere/tokenizer.json cannot be read: no such file"),
        (("--discovery", "dns"), "--discovery 'dns' must be static or kubernetes"),
        (
            ("--admin-port", "1", "--admin-api-key-file", "."),
            "--admin-api-key-file .: the admin key cannot be read: is a",
        ),
        (("--latency-model", "missing.json"), "--latency-model: missing.json cannot be read"),
        (("--routing-output-dir", "/dev/null/x"), "--routing-output-dir"),
    ],
)
def test_wrong_settings_are_reported_in_one_line_before_anything_is_compiled(
    flags: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    result = semgate(tmp_path, "router", "--replicas", "http://127.0.0.1:9", *flags)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert message in line


@pytest.mark.parametrize("by_signal", [True, False])
def test_replicas_are_read_again(by_signal: bool, tmp_path: Path) -> None:
    config = tmp_path / "semgate.toml"
    with ExitStack() as stack:
        _, first = stack.enter_context(replica_process(name="a", tokens=2, itl_ms=1.0))
        _, second = stack.enter_context(replica_process(name="b", tokens=2, itl_ms=1.0))
        _write(config, first, "a")
        seconds = "0" if by_signal else "0.05"
        router = stack.enter_context(
            router_process(tmp_path, "--config", str(config), "--reload-seconds", seconds, "--shutdown-seconds", "1")
        )
        assert say(router.port).header("x-semantickv-replica") == "a"
        config.write_text("[router\n")  # half-written: refused, and the replicas stay
        _hup(router, by_signal)
        refused = router.wait_for("reload failed, replicas unchanged")
        assert "is not TOML" in refused["why"]
        assert say(router.port).header("x-semantickv-replica") == "a"
        _write(config, second, "b", more="max_attempts = 9\n")
        _hup(router, by_signal)
        changed = router.wait_for("replicas set")
        assert (changed["added"], changed["removed"]) == (["b"], ["a"])
        assert changed["needs_restart"] == ["max_attempts"]
        assert say(router.port).header("x-semantickv-replica") == "b"


def test_a_router_that_was_killed_serves_again_and_its_past_can_be_explained(tmp_path: Path) -> None:
    with ExitStack() as stack:
        _, port = stack.enter_context(replica_process(name="a", tokens=2, itl_ms=1.0))
        flags = ("--replicas", f"http://127.0.0.1:{port};name=a")
        with router_process(tmp_path, *flags, port=free_port()) as first:  # one that no connection takes meanwhile
            assert say(first.port, request_id="before").events[-1] == "[DONE]"
            files = tmp_path / "outputs/routing"
            # The writer's thread, not the answer, decides when it is on disk.
            wait_until(lambda: any("before" in path.read_text() for path in files.glob("*.jsonl")))
            first.process.kill()
            first.end()
        for path in (tmp_path / "outputs/routing").glob("*.jsonl"):
            path.write_bytes(path.read_bytes() + b'{"schema":"semgate.decision.v1","request_id":"before","torn')
        with router_process(tmp_path, *flags, port=first.port) as second:
            assert say(second.port, request_id="after").events[-1] == "[DONE]"
            second.process.send_signal(signal.SIGTERM)
            assert second.end() == 0
    for request_id in ("before", "after"):
        result = semgate(tmp_path, "explain", request_id, "--json")
        assert result.returncode == 0, result.stderr
        record = json.loads(result.stdout)
        assert (record["request_id"], record["replica"], record["outcome"]) == (request_id, "a", "complete")
    secret = tmp_path / "outputs/routing/digest-secret"
    assert secret.stat().st_mode & 0o077 == 0


def _write(config: Path, port: int, name: str, more: str = "") -> None:
    config.write_text(
        f'[router]\n{more}routing_policy = "least_loaded"\n'
        f'replicas = [{{url = "http://127.0.0.1:{port}", name = "{name}"}}]\n'
    )


def _hup(router: RouterProcess, by_signal: bool) -> None:
    if by_signal:
        router.process.send_signal(signal.SIGHUP)
