"""Which sessions a run replays: options shared by the benchmarks of agent breaks."""

from __future__ import annotations

import argparse
from pathlib import Path

from scripts.engines.specs import vllm_missing
from scripts.models.known import MODELS, SMOLLM2, KnownModel

from benchmarks.agent_breaks.planted import read_agent_breaks
from benchmarks.agent_breaks.recorded import TURNS
from benchmarks.agent_breaks.replay import ANSWER_TOKENS, SessionCodec, TokenSession
from benchmarks.agent_breaks.sessions import sessions_of
from benchmarks.console import progress
from benchmarks.discovery.codec import TokenizerCodec
from benchmarks.documents import DEFAULT_TEXTS
from sembase.errors import ConfigurationError
from sembench.workload.build import BuildCounts, iterate_items
from sembench.workload.sources import SourceRequest
from sembench.workload.transforms import TransformContext

HEAD_TOKENS = 1_200  # of system prompt, memory and tools, and room for the marks around messages


def add_session_arguments(parser: argparse.ArgumentParser, *, sessions: int, tokens: tuple[int, int]) -> None:
    """Which sessions are replayed, on which model."""
    low, high = tokens
    parser.add_argument("--model", choices=list(MODELS), default=SMOLLM2.name, help="default: %(default)s")
    parser.add_argument("--sessions", type=int, default=sessions, help="at most so many (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=TURNS, help="turns per session (default: %(default)s)")
    parser.add_argument(
        "--tokens",
        type=int,
        nargs=2,
        default=tokens,
        metavar=("LOW", "HIGH"),
        help=f"shortest first and longest last prompt of a session (default: {low} {high})",
    )
    parser.add_argument("--dataset", default="agent_miniswe", help="agent trace in --texts (default: %(default)s)")
    parser.add_argument("--texts", type=Path, default=DEFAULT_TEXTS, help="folder of the traces with text")
    parser.add_argument("--seed", type=int, default=1)


def sessions_to_replay(arguments: argparse.Namespace) -> tuple[KnownModel, list[TokenSession]] | None:
    """The model and its sessions; None, with the reason printed, where nothing can be measured."""
    model = MODELS[arguments.model]
    missing = vllm_missing(model)
    if missing is None:
        try:
            return model, chosen_sessions(arguments, SessionCodec(TokenizerCodec(model.tokenizer)), model.positions)
        except ConfigurationError as error:
            missing = str(error)
    progress(f"nothing measured: {missing}")
    return None


def chosen_sessions(arguments: argparse.Namespace, codec: SessionCodec, positions: int) -> list[TokenSession]:
    """Sessions within the chosen lengths, in the order of the manifest: kinds of breaks take turns.

    Older steps between the task and a session's window are left out where the whole history would be too long.
    """
    low, high = arguments.tokens
    high = min(high, positions - ANSWER_TOKENS)
    request = SourceRequest((arguments.dataset,), arguments.texts, seed=arguments.seed)
    records = read_agent_breaks(request, lambda session: session.within(high - HEAD_TOKENS, codec.size))
    items = iterate_items(records, ("stream",), TransformContext((), seed=arguments.seed), BuildCounts())
    found = []
    for session in sessions_of(items):
        encoded = codec.encode(session.around_break(arguments.turns))
        sizes = [len(turn.prompt) for turn in encoded.turns]
        if low <= sizes[0] and max(sizes) <= high:
            found.append(encoded)
    if not found:
        raise ConfigurationError(f"no session has {low} to {high} tokens throughout; widen --tokens")
    progress(f"{len(found)} sessions of {low} to {high} tokens, {min(len(found), arguments.sessions)} of them replayed")
    return found[: arguments.sessions]
