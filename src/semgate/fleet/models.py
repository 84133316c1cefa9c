"""Which replicas serve which model: each replica's own /v1/models in, a pool per model out. LoRA adapters that an
engine has loaded are in its list under their own names, so they form pools as models do.

A replica whose list is not known yet is in every pool. A fleet that serves the same models everywhere has no pools.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from semgate.fleet.fleet import Fleet
from semgate.fleet.replica import Replica

AT_A_TIME: Final = 16
MAX_MODELS: Final = 4_096  # of one replica; a longer list is not a list of models
ROUNDS_KEPT: Final = 15

# A replica's origin in, the body of its /v1/models out; None if it cannot be read now.
Fetch = Callable[[str], Awaitable[bytes | None]]


class ModelPools:
    def __init__(self, fleet: Fleet, fetch: Fetch) -> None:
        self._fleet = fleet
        self._fetch = fetch
        self._round = 0
        self._listed: dict[Replica, dict[str, Any]] = {}
        self._pools: dict[str, frozenset[str]] = {}

    def serving(self, model: str | None) -> frozenset[str] | None:
        """Names of the replicas that may serve the model; None: all, also for a model that no list has, since the
        engine's own error is the right answer to it."""
        return None if model is None else self._pools.get(model)

    def merged(self) -> bytes | None:
        """The models of all replicas as one list; None if each replica's own list is the same."""
        if not self._pools:
            return None
        entries = {name: entry for listed in self._listed.values() for name, entry in listed.items()}
        return json.dumps({"object": "list", "data": list(entries.values())}).encode()

    async def read_all(self) -> None:
        """One round. A list that is known is read again every ``ROUNDS_KEPT`` rounds: adapters come and go."""
        replicas = list(self._fleet)
        self._listed = {each: listed for each, listed in self._listed.items() if each in set(replicas)}
        is_due = self._round % ROUNDS_KEPT == 0
        self._round += 1
        permits = asyncio.Semaphore(AT_A_TIME)

        async def read(replica: Replica) -> None:
            async with permits:
                listed = models_of(await self._fetch(replica.endpoint.origin))
            if listed is not None:
                self._listed[replica] = listed

        await asyncio.gather(*(read(each) for each in replicas if is_due or each not in self._listed))
        self._pools = self._build(list(self._fleet))

    def _build(self, replicas: list[Replica]) -> dict[str, frozenset[str]]:
        lists = [frozenset(self._listed[each]) for each in replicas if each in self._listed]
        if len(set(lists)) < 2:
            return {}
        unknown = frozenset(each.name for each in replicas if each not in self._listed)
        return {
            model: unknown | {each.name for each in replicas if model in self._listed.get(each, ())}
            for model in frozenset().union(*lists)
        }


def models_of(page: bytes | None) -> dict[str, Any] | None:
    """``{"data": [{"id": name, ..}, ..]}`` by name; None if it is not that."""
    try:
        entries = json.loads(page or b"")["data"]
        listed = {str(entry["id"]): entry for entry in entries[:MAX_MODELS]}
    except (ValueError, LookupError, TypeError):
        return None
    return listed or None
