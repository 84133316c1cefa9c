"""Agent sessions whose prefix breaks, on a real vLLM server: stock, our connector without repair, and with it.

Recorded sessions with planted breaks (``planted``) are replayed whole, turn by turn, with think times. Sessions go in
batches; each batch visits every arm, so that an interrupted run has complete sessions. One server runs at a time.
``--resume`` continues an interrupted run.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from scripts.engines.specs import native_dtype
from scripts.models.known import KnownModel

from benchmarks.agent_breaks.chosen import add_session_arguments, sessions_to_replay
from benchmarks.agent_breaks.figures import Figures, verdicts
from benchmarks.agent_breaks.readings import ARMS, Arm, Reading, ReadingFile
from benchmarks.agent_breaks.replay import (
    Pause,
    Server,
    TokenSession,
    TokenTurn,
    block_tokens,
)
from benchmarks.agent_breaks.sessions import SessionTurn
from benchmarks.agent_breaks.tables import shown
from benchmarks.console import RESULTS, exit_code, progress, show_verdicts, write_results
from benchmarks.vllm.client import Position
from benchmarks.vllm.servers import CORES, OPEN_GATES, stock, with_connector

Distributions = dict[tuple[str, int], tuple[Position, ...]]


def main() -> int:
    arguments = _parse()
    found = sessions_to_replay(arguments)
    if found is None:
        return 3
    model, sessions = found
    file = ReadingFile(RESULTS / f"{arguments.name}-readings.jsonl", _settings(arguments))
    readings, cold = file.read(resume=arguments.resume)
    for start in range(0, len(sessions), arguments.batch):
        for arm in arguments.arms:
            _measure(arm, sessions[start : start + arguments.batch], readings, cold, file, arguments, model)
        _report(readings, arguments)
    return exit_code(_report(readings, arguments, final=True), arguments.enforce)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agent_breaks", description=__doc__)
    add_session_arguments(parser, sessions=40, tokens=(1_000, 8_192))
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS), help="default: all, stock first")
    parser.add_argument("--batch", type=int, default=10, help="sessions per server start (default: %(default)s)")
    parser.add_argument(
        "--min-think-s", type=float, default=4.0, help="pauses are the recorded ones, at least so long (default: 4)"
    )
    parser.add_argument("--max-think-s", type=float, default=30.0, help="and at most so long (default: 30)")
    parser.add_argument(
        "--think",
        choices=("recorded", "repaired"),
        default="recorded",
        help="repaired: pauses take --min-think-s, after a blended turn until it is repaired or --max-think-s "
        "(default: recorded)",
    )
    parser.add_argument("--gates", choices=("default", "open"), default="default", help="open: serve all that is found")
    parser.add_argument(
        "--cold",
        choices=("near", "all", "none"),
        default="near",
        help="turns read cold, for KL and "
        "tool calls: the break and the two turns after it (near), all, or none (default: near)",
    )
    parser.add_argument("--resume", action="store_true", help="continue an interrupted run of the same settings")
    parser.add_argument("--enforce", action="store_true", help="fail the run when a target is missed")
    parser.add_argument("--name", default="agent-breaks", help="name of the files in results/")
    return parser.parse_args()


def _settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """What a run must share with an earlier one to be continued; more sessions or arms may be added."""
    names = ("model", "turns", "tokens", "min_think_s", "max_think_s", "think", "gates", "cold", "dataset", "seed")
    return {name: getattr(arguments, name) for name in names} | {"dtype": native_dtype(), "cores": CORES}


def _measure(
    arm: Arm,
    sessions: Sequence[TokenSession],
    readings: list[Reading],
    cold: Distributions,
    file: ReadingFile,
    arguments: argparse.Namespace,
    model: KnownModel,
) -> None:
    done = {reading.session for reading in readings if reading.arm == arm}
    left = [session for session in sessions if session.session.session_id not in done]
    if not left:
        return

    def pause(turn: SessionTurn) -> Pause:
        """The stock engine does nothing between requests, so its pauses would only take time."""
        least, most = arguments.min_think_s, arguments.max_think_s
        if arm == "stock":
            return Pause(0.0, 0.0)
        if arguments.think == "repaired":
            return Pause(least, most if arm == "idle" else least)
        recorded = min(max(turn.think_s, least), most)
        return Pause(recorded, recorded)

    with _server(arm, arguments, model) as server:
        for number, session in enumerate(left, 1):
            name = session.session.session_id
            if arm == "stock" and arguments.cold != "none":
                turns = [turn for turn in session.turns if _is_read_cold(turn, arguments.cold)]
                own, distributions = server.read_cold(session, turns)
                file.add(own, distributions)
                readings += own
                cold |= {(name, r.turn): tuple(d) for r, d in zip(own, distributions, strict=True)}
            own = server.replay(session, pause, cold)
            file.add(own)
            readings += own
            progress(f"{arm}: {name} ({session.session.kind}), {number} of {len(left)}; {_line(own)}")
        if server.happenings is not None and server.happenings.faults:
            progress(f"{arm}: {server.happenings.faults} faults were contained; see the server's event stream")


def _line(readings: Sequence[Reading]) -> str:
    return " ".join(f"{'|' if r.since_break == 0 else ''}{r.ttft_ms:.0f}" for r in readings if r.arm in ARMS) + " ms"


def _is_read_cold(turn: TokenTurn, which: str) -> bool:
    since = turn.turn.since_break
    return which == "all" or turn.fact is not None or (since is not None and since <= 2)


@contextmanager
def _server(arm: Arm, arguments: argparse.Namespace, model: KnownModel) -> Iterator[Server]:
    if arm == "stock":
        with stock(model) as subject:
            yield Server(arm, subject.client, None, block_tokens=block_tokens(subject.client.metrics()))
        return
    options = {**(OPEN_GATES if arguments.gates == "open" else {}), "repair": arm}
    with with_connector(options, RESULTS / f"{arguments.name}-{arm}-events.jsonl", model=model) as subject:
        blocks = block_tokens(subject.client.metrics())
        yield Server(arm, subject.client, subject.happenings, block_tokens=blocks)


def _report(readings: Sequence[Reading], arguments: argparse.Namespace, *, final: bool = False) -> list[Any]:
    figures = Figures.of(readings)
    judged = verdicts(figures)
    record = {
        "settings": _settings(arguments) | {"texts": str(arguments.texts.name)},
        "figures": figures.as_record(),
        "verdicts": [verdict.as_record() for verdict in judged],
        "readings": [asdict(reading) for reading in figures.readings],
    }
    path = write_results(arguments.name, record)
    if final:
        print(shown(figures))
        show_verdicts(judged)
        progress(f"written: {path.name} in {path.parent.name}/")
    return judged


if __name__ == "__main__":
    raise SystemExit(main())
