"""A real SGLang server with our radix backend, asked over HTTP; the one its own tests use, flushed between drivers.

It tells sums of runs, not their places, and takes no injected fault: the tests of those ask the tracker instead.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from scripts.engines.generate import flush, generate
from tests.conformance.adapter import Answer, Shape
from tests.engines.sglang.running import shared
from tests.waiting import wait_until

from semblend.contract import Declined, Event, LookupFinished, Materialized, decode_line


class SglangServer:
    name = "sglang_server"
    loads: frozenset[Shape] = frozenset({"moved"})
    tells_runs = False

    def __init__(self) -> None:
        running = shared()
        self._server, self._events_file = running.server, running.events
        flush(self._server.base_url)
        self._first = len(self._all())

    def serve(self, tokens: Sequence[int], salt: str | None = None) -> Answer:
        if salt == "":
            pytest.skip("SGLang itself takes an empty salt for none, before any cache is asked")
        rid = f"c{uuid.uuid4().hex}"
        tenant: dict[str, Any] = {} if salt is None else {"cache_salt": salt}
        reply = generate(self._server.base_url, tokens, rid=rid, max_new_tokens=1, **tenant)
        provenance = reply.semblend or {}
        reused, computed = int(provenance.get("reused_tokens", 0)), int(provenance.get("computed_tokens", 0))
        self._wait(lambda event: _ends(event, rid))
        mine = [event for event in self.events() if getattr(event, "request_id", "") == rid]
        look_up = [event for event in mine if isinstance(event, LookupFinished)][-1]
        confirmed = [event.reused_tokens for event in mine if isinstance(event, Materialized)]
        declined = [event.reason for event in mine if isinstance(event, Declined)]
        return Answer(
            look_up.exact_prefix_tokens,
            reused + computed,
            computed=computed,
            confirmed=confirmed[-1] if confirmed else None,
            found=bool(look_up.donor_ids),
            reason=declined[-1] if declined else None,
            reused=reused,
            exact_until=int(provenance["exact_tokens"]) if reused else None,
        )

    def _wait(self, holds: Callable[[Event], bool]) -> None:
        """The engine releases a request a moment after its answer."""
        wait_until(lambda: any(holds(event) for event in self.events()), "the engine reported no end of the request")

    def forget_exact(self) -> None:
        flush(self._server.base_url)

    def forget_donors(self) -> None:
        flush(self._server.base_url)

    def break_look_up(self, broken: bool) -> None:
        raise NotImplementedError("no fault can be put into a running server")

    def donor_tokens(self, donor_id: str) -> Sequence[int]:
        raise LookupError("a server does not tell its donors' tokens")

    def events(self) -> Sequence[Event]:
        return self._all()[self._first :]

    def _all(self) -> list[Event]:
        if not self._events_file.exists():
            return []
        lines = self._events_file.read_text(encoding="utf-8").splitlines(keepends=True)
        return [decode_line(line).event for line in lines if line.endswith("\n")]

    def close(self) -> None:
        flush(self._server.base_url)


def _ends(event: Event, rid: str) -> bool:
    return isinstance(event, Declined | Materialized) and event.request_id == rid
