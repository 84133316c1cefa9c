"""What repair costs requests that run beside it: time between their tokens, with repair off, in idle steps, and likely.

Streams decode without a pause while sessions break, blend and are repaired. Arms take turns (``--rounds``), each on a
server of its own. Only the time after a blended answer counts, in which a repair has work.
"""

from __future__ import annotations

import argparse
import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.agent_breaks.chosen import add_session_arguments, sessions_to_replay
from benchmarks.agent_breaks.replay import TokenSession, TokenTurn, counters
from benchmarks.console import RESULTS, exit_code, progress, show_table, show_verdicts, write_results
from benchmarks.targets import Verdict
from benchmarks.vllm.client import Ask, Client
from benchmarks.vllm.servers import OPEN_GATES, Subject, with_connector

POLICIES: Final = ("off", "idle", "likely")
STREAM_TOKENS: Final = 512
DRAWS: Final = 2_000
MAX_RATIO: Final = 1.05


@dataclass(frozen=True, slots=True)
class Window:
    """The gaps between tokens of all streams after one blended answer, in ms, each stream's in order."""

    policy: str
    round: int
    session: str
    reused_tokens: int
    repaired_tokens: int
    gaps_ms: tuple[float, ...]


class Neighbours:
    """Streams that decode until the block ends; each begins a new request when one is complete."""

    def __init__(self, client: Client, count: int) -> None:
        self._client = client
        self._ended = threading.Event()
        self._moments: list[list[float]] = [[] for _ in range(count)]
        self._errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(count)]

    @contextmanager
    def running(self) -> Iterator[Neighbours]:
        for thread in self._threads:
            thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            for thread in self._threads:
                thread.join()
        if self._errors:
            raise self._errors[0]

    def gaps_ms(self, start: float, end: float) -> list[float]:
        """Between tokens of one request that both arrived within the window; NaN separates requests."""
        found = []
        for moments in self._moments:
            known = list(moments)
            found += [
                (later - earlier) * 1e3
                for earlier, later in itertools.pairwise(known)
                if start <= earlier and later <= end  # false at a NaN
            ]
        return found

    def _run(self, number: int) -> None:
        moments = self._moments[number]
        try:
            for request in itertools.count():
                prompt = range(200 + 64 * number + request % 50, 264 + 64 * number + request % 50)
                ask = Ask(prompt, STREAM_TOKENS, f"neighbour-{number}-{request}", reuse=False)
                with closing(self._client.token_times(ask)) as stream:
                    for moment in stream:
                        moments.append(moment)
                        if self._ended.is_set():
                            return
                moments.append(float("nan"))
        except BaseException as error:  # noqa: BLE001 - shown by the thread that waits
            self._errors.append(error)


def measure(
    subject: Subject, policy: str, number: int, sessions: Sequence[TokenSession], arguments: argparse.Namespace
) -> Iterator[Window]:
    client, happenings = subject.client, subject.happenings
    assert happenings is not None
    with Neighbours(client, arguments.streams).running() as neighbours:
        for session in sessions:
            if (pair := pair_of(session)) is None:
                continue
            before, broken = pair
            salt = f"{policy}-{number}-{session.session.tenant}"
            client.timed(Ask(before.prompt, len(before.answer), salt, capture=None, forced=before.answer))
            time.sleep(2.0)  # the donor is captured
            repaired = counters(client.metrics())["repaired_tokens"]
            reply = client.timed(Ask(broken.prompt, len(broken.answer), salt, capture=None, forced=broken.answer))
            start = time.perf_counter()
            time.sleep(arguments.window_s)
            yield Window(
                policy,
                number,
                session.session.session_id,
                happenings.result(reply.request_id).reused_tokens,
                counters(client.metrics())["repaired_tokens"] - repaired,
                tuple(neighbours.gaps_ms(start, time.perf_counter())),
            )


def pair_of(session: TokenSession) -> tuple[TokenTurn, TokenTurn] | None:
    """The turn before the break and the turn of the break, where the session has both."""
    for before, turn in itertools.pairwise(session.turns):
        if turn.turn.since_break == 0:
            return before, turn
    return None


def ratio_interval(ours: Sequence[Window], off: Sequence[Window], quantile: float = 0.99) -> tuple[float, float, float]:
    """The quantile of ours over that of off, and its 95 % interval: windows are drawn, not gaps, which depend."""
    random = np.random.default_rng(1)

    def drawn(windows: Sequence[Window]) -> NDArray[np.float64]:
        gaps = [np.asarray(window.gaps_ms) for window in windows]
        picks = random.integers(0, len(gaps), (DRAWS, len(gaps)))
        return np.asarray([np.quantile(np.concatenate([gaps[at] for at in pick]), quantile) for pick in picks])

    low, high = np.quantile(drawn(ours) / drawn(off), [0.025, 0.975])
    return _quantile(ours, quantile) / _quantile(off, quantile), float(low), float(high)


def report(windows: Sequence[Window]) -> list[Verdict]:
    """Windows in which something was reused; where nothing was, no repair can follow."""
    by = {policy: [w for w in windows if w.policy == policy and w.reused_tokens and w.gaps_ms] for policy in POLICIES}
    rows, verdicts = [], []
    for policy, own in by.items():
        if not own:
            continue
        ratio = ratio_interval(own, by["off"]) if by["off"] and policy != "off" else None
        rows.append(
            (
                policy,
                len(own),
                sum(len(window.gaps_ms) for window in own),
                *(f"{_quantile(own, quantile):.1f}" for quantile in (0.5, 0.9, 0.99, 1.0)),
                sum(window.repaired_tokens for window in own),
                None if ratio is None else f"{ratio[0]:.3f} [{ratio[1]:.3f}, {ratio[2]:.3f}]",
            )
        )
        if policy != "off":
            measured = None if ratio is None else ratio[0]
            verdicts.append(Verdict(f"{policy}: p99 between tokens over off", "<=", MAX_RATIO, measured, "x"))
    show_table(
        "Time between tokens of running requests after a blended answer, ms",
        ("repair", "windows", "gaps", "p50", "p90", "p99", "max", "repaired tokens", "p99 over off [95 %]"),
        rows,
    )
    show_verdicts(verdicts)
    return verdicts


def main() -> int:
    arguments = _parse()
    found = sessions_to_replay(arguments)
    if found is None:
        return 3
    model, sessions = found
    windows: list[Window] = []
    for number in range(arguments.rounds):
        for policy in POLICIES if number % 2 == 0 else reversed(POLICIES):
            options = {**OPEN_GATES, "repair": policy}
            with with_connector(options, RESULTS / f"{arguments.name}-{policy}-events.jsonl", model=model) as subject:
                for window in measure(subject, policy, number, sessions, arguments):
                    windows.append(window)
                    progress(
                        f"{policy}: {window.session}, {window.reused_tokens} tokens reused, "
                        f"{window.repaired_tokens} repaired, {len(window.gaps_ms)} gaps"
                    )
            write_results(arguments.name, {"windows": [asdict(window) for window in windows]})
    return exit_code(report(windows), arguments.enforce)


def _quantile(windows: Sequence[Window], quantile: float) -> float:
    return float(np.quantile(np.concatenate([np.asarray(window.gaps_ms) for window in windows]), quantile))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agent_breaks.neighbours", description=__doc__)
    add_session_arguments(parser, sessions=4, tokens=(1_500, 4_000))
    parser.add_argument("--streams", type=int, default=2, help="requests that decode beside (default: %(default)s)")
    parser.add_argument("--window-s", type=float, default=60.0, help="after each blended answer (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=1, help="of all three policies (default: %(default)s)")
    parser.add_argument("--enforce", action="store_true", help="fail the run when a target is missed")
    parser.add_argument("--name", default="neighbours", help="name of the files in results/")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
