"""``make bench-fleet-value``: real streams over many replicas without an engine, with the adapter's default gates.

Document questions of eight applications at random replicas, and agent sessions that stay at theirs: tokens reused with
private caches, with a shared exact-prefix tier, and with donors of the fleet; and what each rule for writing writes.
The simulator's figures for the same requests at the same replicas are beside those of the planners.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.console import exit_code, progress, show_table, show_verdicts, write_results
from benchmarks.corpus import TOKENIZER
from benchmarks.discovery.codec import TokenizerCodec
from benchmarks.documents import DEFAULT_TEXTS
from benchmarks.fleet.replay.replicas import BLOCK, ReplayFleet, Totals, Writes
from benchmarks.fleet.replay.streams import StreamRequest, agent_sessions, as_trace, document_questions
from benchmarks.simulator.replicas import Carrier, simulate_fleet
from benchmarks.simulator.replicas import Sharing as SimulatedSharing
from benchmarks.simulator.replicas import Writes as SimulatedWrites
from benchmarks.targets import Verdict
from sembase.trace.columns import BlockTrace

ARMS: dict[str, tuple[Writes, bool]] = {
    "private caches and donors": ("nothing", False),
    "shared exact prefixes, private donors": ("nothing", True),
    "fleet, every prompt written": ("prompts", False),
    "fleet, donors written (all)": ("all", False),
    "fleet, computed donors written": ("computed", False),
    "shared exact prefixes and fleet, all": ("all", True),
}
SIMULATED: dict[str, tuple[SimulatedSharing, SimulatedWrites]] = {
    "private caches and donors": ("nothing", "all"),
    "shared exact prefixes, private donors": ("prefixes", "all"),
    "fleet, donors written (all)": ("donors", "all"),
    "fleet, computed donors written": ("donors", "computed"),
    "shared exact prefixes and fleet, all": ("both", "all"),
}
EVERYTHING = "fleet, every prompt written"
RULES = ("fleet, donors written (all)", "fleet, computed donors written")
MAX_WRITTEN, MIN_REUSED = 0.3, 0.9


def main() -> int:
    chosen = _parse()
    if not TOKENIZER.is_file() or not chosen.texts.is_dir():
        progress("nothing measured: no tokenizer (run: make models) or no texts (--texts FOLDER)")
        return 3
    codec = TokenizerCodec(TOKENIZER)
    streams = {
        "document questions": document_questions(chosen.texts, codec, chosen.requests, chosen.seed),
        "agent sessions": agent_sessions(chosen.texts, codec, chosen.requests),
    }
    record: dict[str, Any] = {}
    verdicts: list[Verdict] = []
    for name, requests in streams.items():
        if not requests:
            continue
        found = {arm: replay(requests, chosen.replicas, *ARMS[arm], chosen.seed) for arm in ARMS}
        trace = as_trace(name, requests, BLOCK)
        simulated = {arm: simulate_arm(trace, chosen.replicas, arm, chosen.seed) for arm in SIMULATED}
        _show(name, requests, chosen.replicas, found, simulated)
        verdicts += verdicts_of(name, found)
        record[name] = {arm: {each: getattr(found[arm], each) for each in Totals.__slots__} for arm in ARMS}
        record[f"{name}, simulated"] = simulated
    show_verdicts(verdicts)
    settings = {key: str(value) for key, value in vars(chosen).items()}
    path = write_results("fleet-value", {"settings": settings, **record})
    progress(f"written: {path.name} in {path.parent.name}/")
    return exit_code(verdicts, chosen.enforce)


def replay(
    requests: Sequence[StreamRequest], replicas: int, writes: Writes, is_prefix_shared: bool, seed: int
) -> Totals:
    fleet = ReplayFleet(replicas, writes, seed, shared_prefix=is_prefix_shared)
    for request in requests:
        fleet.serve(request)
    progress(f"{writes} written{', shared prefixes' if is_prefix_shared else ''}: {fleet.totals.share:.1%}")
    return fleet.totals


def simulate_arm(trace: BlockTrace, replicas: int, arm: str, seed: int) -> float:
    """Fraction of the tokens that the simulator finds cached. Caches have no bound, the carrier costs nothing.

    As in ``ReplayFleet``, a blended request is taken to be repaired.
    """
    sharing, writes = SIMULATED[arm]
    free = Carrier(bytes_per_token=0, ms_per_fetch=0.0)
    found = simulate_fleet(
        trace,
        replicas=replicas,
        capacity=len(trace.nodes),
        sharing=sharing,
        writes=writes,
        is_repaired=True,
        carrier=free,
        seed=seed,
    )
    return found.cached_fraction


def verdicts_of(name: str, found: dict[str, Totals]) -> list[Verdict]:
    """Each rule for writing against writing everything."""
    everything, verdicts = found[EVERYTHING], []
    for rule in RULES:
        written = found[rule].written / everything.written if everything.written else None
        reused = found[rule].share / everything.share if everything.share else None
        verdicts += [
            Verdict(f"{name}: {rule}: KV written over every prompt's", "<=", MAX_WRITTEN, written),
            Verdict(f"{name}: {rule}: reused tokens over every prompt's", ">=", MIN_REUSED, reused),
        ]
    return verdicts


def _show(
    name: str,
    requests: Sequence[StreamRequest],
    replicas: int,
    found: dict[str, Totals],
    simulated: dict[str, float],
) -> None:
    rows = []
    for arm, totals in found.items():
        parts = (totals.exact, totals.reused, totals.exact + totals.reused, totals.written, totals.fetched)
        beside = f"{simulated[arm]:.3f}" if arm in simulated else "-"
        rows.append((arm, *(f"{part / totals.prompt:.3f}" for part in parts), beside))
    mean = sum(request.tokens.size for request in requests) // len(requests)
    title = f"{name}: {len(requests)} requests of {mean:,} tokens over {replicas} replicas, fractions of all tokens"
    show_table(title, ("arm", "exact", "donors", "both", "KV written", "KV fetched", "both, simulated"), rows)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet.replay", description=__doc__)
    parser.add_argument("--replicas", type=int, default=16)
    parser.add_argument("--requests", type=int, default=900, help="of each stream at most")
    parser.add_argument("--texts", type=Path, default=DEFAULT_TEXTS, help="folder of the real texts")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--enforce", action="store_true", help="fail if a target is missed")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
