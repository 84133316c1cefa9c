"""Two routers are one: ``python -m benchmarks.router.several`` (make bench-several). About four minutes.

Real routers and a real Valkey as processes on loopback; the engines have no model (``engines.py``). Parts: ``hits``
(hit rate of two routers beside one, by seed), ``kill`` (kill -9 of one of two under load) and ``restart`` (a million
announced blocks, kill -9, start: seconds to ready and to 95 % of the blocks, with the shared state and without).
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from scripts.engines.valkey import start_valkey

from benchmarks.console import exit_code, progress, show_table, show_verdicts, write_results
from benchmarks.router.several.load import Outcome, run
from benchmarks.router.several.processes import Engines, Router, closing_all
from benchmarks.targets import Verdict

PARTS: Final = ("hits", "kill", "restart")
ENGINES: Final = 8
CAPACITY: Final = 1_500  # blocks; less than the sessions of a run need
AT_ONCE: Final = 24
BUFFERED: Final = 10_000  # messages; vLLM's default


def _nothing(_done: int) -> None:
    return None


def hits(store: str, folder: Path, rounds: int, sessions: int) -> tuple[list[dict[str, Any]], list[Verdict]]:
    rows = []
    for seed in range(rounds):
        for count in (1, 2):
            with closing_all() as held:
                engines = Engines(ENGINES, CAPACITY, 0, BUFFERED)
                held.append(engines)
                routers = []
                for number in range(count):
                    space = f"--shared-state-space=hits-{seed}-{count}"
                    router = Router(folder / f"hits-{seed}-{count}-{number}", engines.engines, store, space)
                    held.append(router)
                    routers.append(router)
                ports = [each.port for each in routers]
                found = asyncio.run(run(ports, sessions, at_once=AT_ONCE, seed=seed, after=_nothing))
            rows.append(_row("hits", seed, count, found))
            progress(f"seed {seed}, {count} router(s): hit rate {found.hit_rate:.4f} of {found.requests} requests")
    by = {(each["seed"], each["routers"]): each["hit_rate"] for each in rows}
    worst = max(100 * (by[seed, 1] - by[seed, 2]) for seed in range(rounds))
    lost = sum(each["lost"] for each in rows)
    return rows, [
        Verdict("hit rate of one router minus that of two, worst seed", "<=", 2.0, worst, "points"),
        Verdict("requests without an answer", "==", 0.0, lost, is_law=True),
    ]


def kill(store: str, folder: Path, sessions: int) -> tuple[list[dict[str, Any]], list[Verdict]]:
    with closing_all() as held:
        engines = Engines(ENGINES, CAPACITY, 0, BUFFERED)
        held.append(engines)
        routers = []
        for number in range(2):
            router = Router(folder / f"kill-{number}", engines.engines, store, "--shared-state-space=kill")
            held.append(router)
            routers.append(router)
        half = sessions * 3  # of six turns

        def at_half(done: int) -> None:
            if done == half:
                routers[0].kill()

        found = asyncio.run(run([each.port for each in routers], sessions, at_once=AT_ONCE, seed=99, after=at_half))
    progress(f"killed after {half} requests: {found.repeated} attempts repeated, {found.lost} of {found.requests} lost")
    return [_row("kill", 99, 2, found)], [
        Verdict("requests lost after kill -9 of one of two", "==", 0.0, float(found.lost), is_law=True)
    ]


def restart(store: str, folder: Path, blocks: int) -> tuple[list[dict[str, Any]], list[Verdict]]:
    rows: list[dict[str, Any]] = []
    with closing_all() as held:
        engines = Engines(4, CAPACITY, blocks // 4, 1_000)
        held.append(engines)
        first = Router(folder / "restart", engines.engines, store, "--shared-state-space=restart")
        held.append(first)
        time.sleep(1.0)  # subscriptions
        engines.announce()
        _wait(lambda: first.metric("semgate_index_blocks") >= blocks * 0.999, "all blocks are announced")
        saved = first.metric("semgate_snapshots_saved_total")
        _wait(lambda: first.metric("semgate_snapshots_saved_total") >= saved + 4, "snapshots are written", idle_s=6.0)
        known = first.metric("semgate_index_blocks")
        first.kill()
        for name, where in (("snapshot and replay", store), ("replay only", None)):
            space = [] if where is None else ["--shared-state-space=restart"]
            again = Router(folder / f"again-{name[:3]}", engines.engines, where, *space)
            held.append(again)
            reached_s = reached_cpu_s = None
            while reached_s is None and time.monotonic() - again.ready_s < 20.0:
                if again.metric("semgate_index_blocks") >= 0.95 * known:
                    reached_s, reached_cpu_s = time.monotonic() - again.started_s, again.cpu_s()
                time.sleep(0.05)
            rows.append(
                {
                    "part": "restart",
                    "start": name,
                    "known_before": known,
                    "known_after": again.metric("semgate_index_blocks"),
                    "ready_s": again.ready_s - again.started_s,
                    "ready_cpu_s": again.ready_cpu_s,
                    "known_95_s": reached_s,
                    "known_95_cpu_s": reached_cpu_s,
                }
            )
            again.kill()
            progress(f"{name}: {rows[-1]}")
    warm = rows[0]
    return rows, [
        Verdict("start to ready", "<=", 5.0, warm["ready_s"], "s"),
        Verdict(f"start to 95 % of {known:,.0f} blocks", "<=", 5.0, warm["known_95_s"], "s"),
        Verdict("the same in processor time", "<=", 5.0, warm["known_95_cpu_s"], "s"),
    ]


def _wait(condition: Callable[[], bool], what: str, idle_s: float = 120.0) -> None:
    end_s = time.monotonic() + idle_s
    while not condition() and time.monotonic() < end_s:
        time.sleep(0.2)
    progress(what)


def _row(part: str, seed: int, routers: int, found: Outcome) -> dict[str, Any]:
    return {
        "part": part,
        "seed": seed,
        "routers": routers,
        "requests": found.requests,
        "hit_rate": found.hit_rate,
        "repeated": found.repeated,
        "lost": found.lost,
        "by_router": sorted(found.by_port.values()),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (default: all)")
    parser.add_argument("--rounds", type=int, default=3, help="seeds of the part hits (default: %(default)s)")
    parser.add_argument("--sessions", type=int, default=150, help="of six turns each (default: %(default)s)")
    parser.add_argument("--blocks", type=int, default=1_000_000, help="of the part restart (default: %(default)s)")
    parser.add_argument("--enforce", action="store_true", help="exit code 1 also for a target that was not reached")
    options = parser.parse_args(arguments)
    parts = options.parts or PARTS
    rows: list[dict[str, Any]] = []
    verdicts: list[Verdict] = []
    with start_valkey("1gb") as server, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        works = {
            "hits": lambda: hits(server.url, folder, options.rounds, options.sessions),
            "kill": lambda: kill(server.url, folder, options.sessions),
            "restart": lambda: restart(server.url, folder, options.blocks),
        }
        for part in parts:
            found, judged = works[part]()
            rows += found
            verdicts += judged
    for part in parts:
        mine = [each for each in rows if each["part"] == part]
        columns = list(mine[0])
        show_table(part, columns, [[_shown(each[column]) for column in columns] for each in mine])
    show_verdicts(verdicts)
    write_results("router-several", {"rows": rows, "verdicts": [each.as_record() for each in verdicts]})
    return exit_code(verdicts, bool(options.enforce))


def _shown(value: Any) -> Any:
    return (
        f"{value:,.4g}"
        if isinstance(value, float) and value < 1e5
        else f"{value:,.0f}"
        if isinstance(value, float)
        else value
    )


if __name__ == "__main__":
    raise SystemExit(main())
