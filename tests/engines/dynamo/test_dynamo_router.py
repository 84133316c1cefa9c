"""Dynamo's real front-end, KV router and mocker workers, real ZeroMQ; donors are announced by our announcer.

The mocker computes nothing and has no connector of ours: what is shown is placement, never reuse.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.engines.dynamo.deployment import KEY, Deployment, RouterProcess
from tests.waiting import wait_until

from semblend.contract import FaultContained
from semblend.contract.donor_event import tenant_of_salt
from semblend.integration.announce import DonorAnnouncer
from semblend.integration.border import Border
from semblend.integration.donor_socket import DonorSocket
from semblend.plan.gates import Gates

pytestmark = pytest.mark.engine
LOG = logging.getLogger("dynamo router")


def words(seed: int, length: int) -> NDArray[np.uint32]:
    return np.random.default_rng(seed).integers(100, 40_000, length).astype(np.uint32)


def prompt(*parts: NDArray[np.uint32]) -> list[int]:
    return [int(token) for token in np.concatenate(parts)]


class Publisher:
    """An announcer on free ports, and where a router reaches it."""

    def __init__(self, faults: list[FaultContained], buffer_batches: int = 1000) -> None:
        self._sockets: list[DonorSocket] = []
        self._buffer_batches = buffer_batches
        self.announcer = DonorAnnouncer(self._open, KEY.encode(), Border(faults.append, LOG), gates=Gates())
        wait_until(lambda: bool(self._sockets))

    def _open(self) -> DonorSocket:
        self._sockets.append(DonorSocket("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", self._buffer_batches))
        return self._sockets[0]

    def followed_by(self, router: RouterProcess, worker: int) -> None:
        events, replay = self._sockets[0].endpoints
        router.ask("follow", worker_id=worker, endpoint=events, replay=replay)


@pytest.fixture
def publishers() -> Iterator[Callable[..., Publisher]]:
    faults: list[FaultContained] = []
    opened: list[Publisher] = []

    def open_publisher(**options: int) -> Publisher:
        opened.append(Publisher(faults, **options))
        return opened[-1]

    yield open_publisher
    for publisher in opened:
        publisher.announcer.close()
    assert not faults


def test_a_worker_that_holds_the_content_is_chosen(
    deployment: Deployment, publishers: Callable[..., Publisher]
) -> None:
    document = words(1, 1500)
    of_first, of_second = publishers(), publishers()
    with deployment.router() as router:
        first, second = router.ask("workers", count=2)
        of_first.followed_by(router, first)
        of_second.followed_by(router, second)
        of_second.announcer.loadable("doc", document, tenant_of_salt("acme"), None)
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

        of_second.announcer.withdrawn("doc", "evicted")
        assert router.ask("donors", count=0) == 0
        gone = router.ask("place", tokens=prompt(words(5, 48), document, words(6, 32)), cache_salt="acme")
        assert gone["reason"] == "no_candidate"


def test_a_router_that_joins_late_learns_earlier_events(
    deployment: Deployment, publishers: Callable[..., Publisher]
) -> None:
    published = publishers(buffer_batches=2)
    for number in range(8):  # far more than the buffer holds, in messages of their own
        published.announcer.loadable(f"d{number}", words(number, 400), None, None)
        wait_until(lambda: published.announcer._queue.empty())
        time.sleep(0.15)
    with deployment.router() as router:
        published.followed_by(router, router.ask("workers", count=2)[0])
        assert router.ask("donors", count=8) == 8


def test_the_front_end_sends_a_pinned_request_where_it_was_placed(deployment: Deployment) -> None:
    with deployment.router() as router:
        workers = router.ask("workers", count=2)
    for worker in workers:
        reply = deployment.complete(f"Where does this go? {worker}", worker)
        assert reply["usage"]["completion_tokens"] == 2
        assert str(worker) in str(reply["nvext"]["worker_id"])
