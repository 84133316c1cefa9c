"""``kvmend simulate replay``: one recorded trace through several policies at given capacities."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from semantic_kv.cache.result import CACHE_MODELS
from semantic_kv.calibrate import calibrate_trace, read_latency_model
from semantic_kv.calibrate.observations import is_invented
from semantic_kv.cli.arguments import add_work, policy, run_options
from semantic_kv.cli.folders import new_folder, run_facts
from semantic_kv.experiment.config import BASELINE, ExperimentConfig, FileSource, PolicyChoice
from semantic_kv.experiment.observed import INVENTED, compare_observed
from semantic_kv.experiment.run import open_source, run_study_on
from semantic_kv.experiment.verdict import MODELLED, verdict_of
from semantic_kv.report.outputs import write_replay
from semantic_kv.shipped import EXAMPLE, trace_or_example
from sembase.command_line import ExitCode, existing_file
from sembase.errors import ConfigurationError
from sembase.latency import LatencyModel
from sembase.streams import write_out
from sembase.trace.columns import BlockTrace
from sembase.trace.formats import FORMATS
from sembase.trace.load import read_records, sniff_format
from sembase.trace.locate import HELP as TRACE_HELP
from sembase.trace.locate import trace_files
from sembase.values import amount, capacity, positive

NAME: Final = "replay"
SUMMARY: Final = "Replay a recorded trace under several policies, optionally with a latency model calibrated on it."
EXAMPLES: Final = """\
  kvmend simulate replay --trace example --cache-token-budget 2k
  kvmend simulate replay --trace trace.jsonl --cache-token-budget 50k --calibrate-from-trace
  kvmend simulate replay --trace mooncake.jsonl.gz --cache-blocks 5k --policies lru s3fifo lru+second_use"""
_DEFAULT_POLICIES: Final = ("lru", "adaptive_semantic", "static_semantic")


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--trace",
        required=True,
        type=trace_or_example,
        metavar="TRACE",
        help=f"{TRACE_HELP}, or {EXAMPLE!r}, in any known format",
    )
    command.add_argument("--format", metavar="NAME", help="trace format (default: detected from the first line)")
    command.add_argument("--max-requests", type=positive, metavar="N", help="replay the first N requests only")
    size = command.add_mutually_exclusive_group(required=True)
    size.add_argument(
        "--cache-token-budget", type=capacity, metavar="N", help="capacity in tokens, for example 50000 or 50k"
    )
    size.add_argument("--cache-blocks", type=capacity, metavar="N", help="capacity in blocks")
    command.add_argument(
        "--policies",
        nargs="+",
        type=policy,
        default=[PolicyChoice(name) for name in _DEFAULT_POLICIES],
        metavar="EVICT[+ADMIT]",
        help=f"policies to compare; LRU is always included (default: {' '.join(_DEFAULT_POLICIES)})",
    )
    command.add_argument(
        "--models",
        nargs="+",
        choices=CACHE_MODELS,
        default=list(CACHE_MODELS),
        help="cache models (default: both, prefix_tree first)",
    )
    command.add_argument(
        "--output-name",
        default="trace_replay",
        metavar="NAME",
        help="name of the results folder (default: %(default)s)",
    )
    command.add_argument(
        "--output-dir",
        type=Path,
        default=Path("outputs/traces"),
        metavar="DIR",
        help="parent of the results folder (default: %(default)s)",
    )
    latency = command.add_argument_group("latency model (TTFT is modelled)")
    latency.add_argument("--base-ms", type=amount, metavar="MS", help="default: 80")
    latency.add_argument("--ms-per-uncached-token", type=amount, metavar="MS", help="default: 0.08")
    source = latency.add_mutually_exclusive_group()
    source.add_argument("--calibrate-from-trace", action="store_true", help="fit it to the observed TTFT of the trace")
    source.add_argument(
        "--latency-model", type=existing_file, metavar="FILE", help="calibration.json of kvmend simulate calibrate"
    )
    add_work(command)


def execute(options: argparse.Namespace) -> ExitCode:
    source = FileSource(str(options.trace), options.format, options.max_requests)
    trace = open_source(source, 0, Path())
    latency, notes = _latency(options, trace)
    in_tokens = options.cache_token_budget is not None
    config = ExperimentConfig(
        experiment=options.output_name,
        description=f"Replay of {trace.name}.",
        source=source,
        unit="tokens" if in_tokens else "blocks",
        capacities=(options.cache_token_budget if in_tokens else options.cache_blocks,),
        policies=tuple(dict.fromkeys(options.policies)),
        models=tuple(options.models),
        latency=latency,
    )
    study = run_study_on(config, lambda seed: trace, run_options(options, options.output_dir, Path()))
    lru = PolicyChoice(BASELINE)
    comparison = compare_observed(
        trace,
        lru,
        config.models[0],
        config.unit,
        config.capacities[0],
        latency,
        is_invented=_is_invented(options.trace, options.format),
    )
    if comparison is not None and comparison.is_invented:
        notes = (INVENTED, *notes)
    folder = new_folder(options.output_dir, options.output_name)
    write_replay(study, comparison, notes, folder, run_facts())
    verdict = verdict_of(study)
    write_out(f"{verdict.headline}\n" + "".join(f"- {line}\n" for line in (*verdict.sentences, *notes)))
    write_out(f"{MODELLED}\nresults: {folder}\n")
    return ExitCode.OK


def _latency(options: argparse.Namespace, trace: BlockTrace) -> tuple[LatencyModel, tuple[str, ...]]:
    given = options.base_ms is not None or options.ms_per_uncached_token is not None
    if given and (options.calibrate_from_trace or options.latency_model):
        raise ConfigurationError(
            "--base-ms and --ms-per-uncached-token cannot be combined with a calibrated latency model"
        )
    if options.calibrate_from_trace:
        found = calibrate_trace(trace)
        note = "Latency model fitted to this trace: median absolute error on its latest, held-out requests"
        return found.model, (f"{note} {100 * found.held_out_mdape:.1f} %.", *_queue_note(found.engine is not None))
    if options.latency_model:
        model, engine = read_latency_model(options.latency_model)
        return model, (f"Latency model of {options.latency_model.name}.", *_queue_note(engine is not None))
    if not given:
        return LatencyModel(), ("Latency model: the defaults, 80 ms + 0.08 ms per uncached token, not calibrated.",)
    base = 80.0 if options.base_ms is None else options.base_ms
    slope = 0.08 if options.ms_per_uncached_token is None else options.ms_per_uncached_token
    return LatencyModel(base, slope, source="given"), (
        f"Latency model as given: {base:g} ms + {slope:g} ms per token.",
    )


def _is_invented(trace: Path, name: str | None) -> bool:
    """By the first record; a format without records has no place to say so."""
    if FORMATS.get(name or sniff_format(trace_files(trace)[0])).records is None:
        return False
    first = next(read_records(trace, name), None)
    return first is not None and is_invented(first)


def _queue_note(queueing: bool) -> tuple[str, ...]:
    return ("Queueing in the server is not included in this comparison of policies.",) if queueing else ()
