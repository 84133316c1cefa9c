"""Units that can be replayed independently: single items with their donors, or one whole stream in order."""

from __future__ import annotations

import multiprocessing
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Final

from sembase.errors import ConfigurationError
from sembench.manifest import WorkloadItem
from sembench.metrics.rows import RequestRow
from sembench.replay.session import ReplayConfig, Session, Tools

_ITEMS_PER_UNIT: Final = 8


@dataclass(frozen=True, slots=True)
class Unit:
    """``done`` are ids of items that already have a row; in a stream they still are earlier traffic."""

    items: tuple[WorkloadItem, ...]
    stream_id: str | None
    done: frozenset[str]


def units_of(items: Sequence[WorkloadItem], done: Collection[str]) -> list[Unit]:
    streams: dict[str, list[WorkloadItem]] = {}
    single: list[WorkloadItem] = []
    for item in items:
        if item.is_stream:
            streams.setdefault(item.stream_id, []).append(item)
        elif item.item_id not in done:
            single.append(item)
    finished = frozenset(done)
    units = [
        Unit(tuple(members), stream_id, finished)
        for stream_id, members in streams.items()
        if any(member.item_id not in finished for member in members)
    ]
    chunks = range(0, len(single), _ITEMS_PER_UNIT)
    return units + [Unit(tuple(single[i : i + _ITEMS_PER_UNIT]), None, frozenset()) for i in chunks]


def replay_unit(unit: Unit, tools: Tools) -> Iterator[RequestRow]:
    if unit.stream_id is not None:
        yield from _replay_stream(unit, tools)
        return
    for item in unit.items:
        session = Session(tools, item.item_id)
        try:
            for donor in item.donor_prompts:
                session.admit(donor.donor_id, donor.text, item.tenant_of_donor(donor))
            yield session.measure(item)
        finally:
            session.end()


def _replay_stream(unit: Unit, tools: Tools) -> Iterator[RequestRow]:
    session = Session(tools, f"stream\x1f{unit.stream_id}")
    try:
        for item in unit.items:
            if item.item_id not in unit.done:
                yield session.measure(item)
            session.admit(item.item_id, item.recipient_prompt, item.tenant)
    finally:
        session.end()


def replay_units(units: Sequence[Unit], config: ReplayConfig, jobs: int) -> Iterator[RequestRow]:
    """Rows in the order in which they are ready. A unit gives the same rows in any process."""
    if jobs <= 1 or len(units) <= 1:
        tools = Tools(config)
        try:
            for unit in units:
                yield from replay_unit(unit, tools)
        finally:
            tools.close()
        return
    # spawn: a forked child would inherit the locks of threads that do not exist in it.
    context = multiprocessing.get_context("spawn")
    workers = min(jobs, len(units))
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=(config,)) as pool:
        futures = [pool.submit(_replay_in_worker, unit) for unit in units]
        try:
            for future in as_completed(futures):
                yield from future.result()
        except BrokenProcessPool:
            raise ConfigurationError(
                "a worker process died (out of memory?); run again with fewer --jobs and --resume"
            ) from None
        finally:
            for future in futures:
                future.cancel()


_tools: Tools | None = None


def _start_worker(config: ReplayConfig) -> None:
    global _tools  # noqa: PLW0603 - created once per worker process, not once per unit
    _tools = Tools(config)


def _replay_in_worker(unit: Unit) -> list[RequestRow]:
    assert _tools is not None
    return list(replay_unit(unit, _tools))
