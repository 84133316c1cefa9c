"""Donor announcements over CURVE: a router that is admitted reads them; others, and other publishers, are refused."""

from __future__ import annotations

import asyncio
import logging
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import zmq
import zmq.asyncio
import zmq.auth
from tests.waiting import PATIENCE_S, until
from zmq.utils.monitor import recv_monitor_message

from sembase.errors import ConfigurationError
from sembase.zmq_curve import CurveClient, open_curve_client, open_curve_server, read_key_pair
from semblend.donors.index import DonorIndex
from semblend.donors.sink import DonorSink
from semblend.donors.zmq_feed import DonorFeed
from semblend.integration.announce import DonorAnnouncer
from semblend.integration.border import Border
from semblend.integration.donor_socket import DonorSocket

KEY = b"a key that engines and routers share"
TOKENS = np.random.default_rng(1).integers(0, 50_000, 400).astype(np.uint32)


@dataclass(frozen=True)
class Made:
    """Files of an engine, the router it admits, and two strangers: a router and a publisher."""

    folder: Path
    admitted: Path

    def file(self, name: str) -> Path:
        return self.folder / name


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("curve")
    admitted = folder / "admitted"
    admitted.mkdir()
    for name in ("engine", "router", "stranger"):
        zmq.auth.create_certificates(folder, name)
    shutil.copy(folder / "router.key", admitted)
    return Made(folder, admitted)


def donor_socket(made: Made, clients: Path | None) -> DonorSocket:
    curve = open_curve_server(made.file("engine.key_secret"), clients)
    return DonorSocket("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", 100, curve)


def test_an_admitted_router_reads_announcements_and_replays(made: Made) -> None:
    socket = donor_socket(made, made.admitted)
    announcer = DonorAnnouncer(lambda: socket, KEY, Border(lambda _: None, logging.getLogger()))

    async def work() -> None:
        index = DonorIndex(KEY)
        curve = open_curve_client(made.file("engine.key"), made.file("router.key_secret"))
        feed = DonorFeed(partial(DonorSink, index), index.forget, curve=curve)
        announcer.loadable("before", TOKENS, None, None)
        try:
            feed.follow(1, *socket.endpoints)
            await until(lambda: index.donors(1) == ["before"])
            announcer.loadable("after", TOKENS, None, None)
            await until(lambda: len(index.donors(1)) == 2)
        finally:
            await feed.close()

    try:
        asyncio.run(asyncio.wait_for(work(), PATIENCE_S))
    finally:
        announcer.close()


async def handshake(kind: int, endpoint: str, curve: CurveClient | None) -> bool:
    """Whether a subscriber is admitted; waits for whichever comes."""
    context = zmq.asyncio.Context()
    socket = context.socket(kind)
    failed = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    failed |= zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_DISCONNECTED
    monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | failed)
    try:
        if curve is not None:
            curve.apply(socket)
        socket.connect(endpoint)
        return bool((await recv_monitor_message(monitor))["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED)
    finally:
        socket.disable_monitor()
        monitor.close()
        socket.close(linger=0)
        context.term()


@pytest.mark.parametrize(
    ("server", "own", "lists_clients", "is_admitted"),
    [
        ("engine.key", "router.key_secret", True, True),
        ("engine.key", "stranger.key_secret", True, False),
        ("engine.key", None, True, False),
        ("engine.key", None, False, True),
        ("stranger.key", "router.key_secret", False, False),
        (None, None, False, False),
    ],
)
def test_who_is_admitted(
    made: Made, server: str | None, own: str | None, lists_clients: bool, is_admitted: bool
) -> None:
    socket = donor_socket(made, made.admitted if lists_clients else None)
    curve = None
    if server is not None:
        curve = open_curve_client(made.file(server), None if own is None else made.file(own))
    try:
        for kind, endpoint in zip((zmq.SUB, zmq.DEALER), socket.endpoints, strict=True):
            assert asyncio.run(asyncio.wait_for(handshake(kind, endpoint, curve), PATIENCE_S)) == is_admitted
    finally:
        socket.close()


def test_files_that_are_no_certificates_are_named(made: Made, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.key"
    wrong.write_text("nothing")
    for path in (wrong, tmp_path / "absent.key"):
        with pytest.raises(ConfigurationError, match="not a CURVE certificate"):
            open_curve_client(path, None)
    with pytest.raises(ConfigurationError, match="holds no secret key"):
        read_key_pair(made.file("engine.key"))
    with pytest.raises(ConfigurationError, match="not a folder"):
        open_curve_server(made.file("engine.key_secret"), wrong)
