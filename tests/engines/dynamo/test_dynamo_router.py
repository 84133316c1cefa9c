"""Dynamo's real front-end, KV router and mocker workers, real NATS and ZeroMQ; donors are announced by our announcer.

The mocker computes nothing and has no connector of ours: what is shown is placement, never reuse.
"""

from __future__ import annotations

import logging
import time

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.engines.dynamo.deployment import KEY, Deployment, NatsServer
from tests.waiting import wait_until

from semblend.contract import FaultContained
from semblend.contract.donor_event import tenant_of_salt
from semblend.integration.announce import DonorAnnouncer, open_nats_announcer
from semblend.integration.border import Border
from semblend.integration.donor_socket import DonorSocket
from semblend.plan.gates import Gates

pytestmark = pytest.mark.engine
LOG = logging.getLogger("dynamo router")


def words(seed: int, length: int) -> NDArray[np.uint32]:
    return np.random.default_rng(seed).integers(100, 40_000, length).astype(np.uint32)


def prompt(*parts: NDArray[np.uint32]) -> list[int]:
    return [int(token) for token in np.concatenate(parts)]


def test_a_worker_that_holds_the_content_is_chosen_over_nats(deployment: Deployment, nats_server: NatsServer) -> None:
    faults: list[FaultContained] = []
    border = Border(faults.append, LOG)
    document = words(1, 1500)
    announcers: list[DonorAnnouncer] = []
    with deployment.router("nats", nats_server.url) as router:
        try:
            first, second = router.ask("workers", count=2)
            announcers += [
                open_nats_announcer(nats_server.url, str(worker), KEY.encode(), border, gates=Gates())
                for worker in (first, second)
            ]
            announcers[1].loadable("doc", document, tenant_of_salt("acme"), None)
            assert router.ask("donors", count=1) == 1
            request = prompt(words(2, 48), document, words(3, 32))

            placed = router.ask("place", tokens=request, cache_salt="acme")
            assert placed["outcome"] == "semantic_placement"
            assert placed["worker"] == [second, 0]
            evidence = {worker: (exact, semantic) for worker, exact, semantic in placed["evidence"]}
            assert evidence[first] == (0, 0)
            assert evidence[second][1] >= len(document) - 64

            for other in ("rival", "", None):
                refused = router.ask("place", tokens=request, cache_salt=other)
                assert (refused["worker"], refused["reason"]) == (None, "no_candidate"), other

            served = router.ask("serve", tokens=request, cache_salt="acme", worker=None)
            assert served == {"outcome": "semantic_placement", "served": [second], "finish": "length"}

            # Now the second worker holds it as an exact prefix, and Dynamo's own index says so: exact wins.
            again = router.ask("place", tokens=request, cache_salt="acme")
            assert again["worker"] is None
            assert again["outcome"] in ("exact_prefix", "cold_fallback")

            # A prompt the first worker knows exactly stays with it, whatever the second expects to spare.
            known = prompt(document, words(4, 32))
            pinned = router.ask("serve", tokens=known, cache_salt="rival", worker=first)
            assert pinned["served"] == [first]
            assert router.ask("place", tokens=known, cache_salt="acme")["outcome"] == "exact_prefix"

            announcers[1].withdrawn("doc", "evicted")
            assert router.ask("donors", count=0) == 0
            gone = router.ask("place", tokens=prompt(words(5, 48), document, words(6, 32)), cache_salt="acme")
            assert gone["reason"] == "no_candidate"
        finally:
            for announcer in announcers:
                announcer.close()
    assert not faults


def test_a_router_that_joins_late_learns_earlier_events_over_nats(
    deployment: Deployment, nats_server: NatsServer
) -> None:
    announcer = open_nats_announcer(nats_server.url, "77", KEY.encode(), Border(lambda _: None, LOG), buffer_batches=2)
    try:
        for number in range(8):  # far more than the buffer holds, in messages of their own
            announcer.loadable(f"d{number}", words(number, 400), None, None)
            wait_until(lambda: announcer._queue.empty())
            time.sleep(0.15)
        with deployment.router("nats", nats_server.url) as router:
            assert router.ask("donors", count=8) == 8
    finally:
        announcer.close()


def test_a_worker_that_holds_the_content_is_chosen_over_zeromq(deployment: Deployment) -> None:
    opened: list[DonorSocket] = []

    def open_socket() -> DonorSocket:
        opened.append(DonorSocket("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", 1000))
        return opened[0]

    document = words(11, 1500)
    announcer = DonorAnnouncer(open_socket, KEY.encode(), Border(lambda _: None, LOG))
    try:
        announcer.loadable("doc", document, None, None)
        wait_until(lambda: bool(opened))
        events, replay = opened[0].endpoints
        with deployment.router("zmq", "") as router:
            first, second = router.ask("workers", count=2)
            router.ask("follow", worker_id=first, endpoint=events, replay=replay)
            assert router.ask("donors", count=1) == 1, "reply before the router came: only a replay can tell"
            request = prompt(words(12, 48), document, words(13, 32))
            served = router.ask("serve", tokens=request, cache_salt=None, worker=None)
            assert served == {"outcome": "semantic_placement", "served": [first], "finish": "length"}
            assert second not in served["served"]
    finally:
        announcer.close()


def test_the_front_end_sends_a_pinned_request_where_it_was_placed(deployment: Deployment) -> None:
    with deployment.router("zmq", "") as router:
        workers = router.ask("workers", count=2)
    for worker in workers:
        reply = deployment.complete(f"Where does this go? {worker}", worker)
        assert reply["usage"]["completion_tokens"] == 2
        assert str(worker) in str(reply["nvext"]["worker_id"])
