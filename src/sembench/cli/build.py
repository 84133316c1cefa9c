"""``kvmend bench build``: records of a profile, or recorded traffic -> transforms -> a manifest."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Final

from sembase.command_line import ExitCode
from sembase.errors import ConfigurationError
from sembase.streams import write_out
from sembase.trace.locate import HELP as TRACE_HELP
from sembase.trace.locate import existing_trace, trace_files
from sembase.values import count, positive
from sembench.cli.output import require_other_file, require_writable
from sembench.manifest import manifest_digest, write_manifest
from sembench.workload.build import BuildCounts, iterate_items
from sembench.workload.readers.files import is_source
from sembench.workload.record import SourceRecord
from sembench.workload.sources import BUILT_IN, SOURCES, SourceRequest
from sembench.workload.sources.base import CONTEXT_WORDS
from sembench.workload.sources.trace import read_trace_records, with_donors
from sembench.workload.transforms import ANSWERED, PAIRED, TransformContext

NAME: Final = "build"
SUMMARY: Final = "Build a manifest of donors and recipients, or of a stream, from a corpus or from recorded traffic."
EXAMPLES: Final = """\
  kvmend bench build --from-trace traces/ --output m.jsonl     (each request after those it repeats)
  kvmend bench build --profile longbench-v1 --data-dir longbench --datasets multi_news --output m.jsonl"""
_STREAM: Final = ("stream",)
_RECORDED: Final = ("recorded",)


def add_arguments(command: argparse.ArgumentParser) -> None:
    source = command.add_mutually_exclusive_group(required=True)
    source.add_argument("--profile", choices=list(BUILT_IN), help="where the source records come from")
    source.add_argument(
        "--from-trace", type=existing_trace, metavar="TRACE", help=f"recorded traffic with text: {TRACE_HELP}"
    )
    command.add_argument("--output", required=True, type=Path, metavar="FILE", help="the manifest to write (.jsonl)")
    command.add_argument(
        "--datasets", nargs="*", default=[], metavar="NAME", help="datasets of the profile (default: all)"
    )
    command.add_argument("--data-dir", type=Path, metavar="DIR", help="read local files below DIR instead of the hub")
    command.add_argument(
        "--max-items-per-dataset", type=positive, metavar="N", help="source records per dataset (default: all)"
    )
    command.add_argument(
        "--transforms",
        nargs="*",
        default=[],
        metavar="NAME",
        help=f"transforms applied to each record (default: {' '.join(PAIRED)}; for answers: {' '.join(ANSWERED)}; for "
        "agent-trace: stream; for "
        "--from-trace: recorded, which pairs each request with the earlier ones that it repeats; stream keeps the "
        "order of the traffic instead)",
    )
    command.add_argument(
        "--max-segments", type=positive, default=4, metavar="N", help="segments per document (default: 4)"
    )
    command.add_argument(
        "--min-segment-chars",
        type=positive,
        default=400,
        metavar="N",
        help="minimum characters per segment (default: 400)",
    )
    command.add_argument(
        "--context-words",
        type=positive,
        default=CONTEXT_WORDS,
        metavar="N",
        help=f"length of the documents that the profile answers generates, in words (default: {CONTEXT_WORDS})",
    )
    command.add_argument(
        "--max-context-chars",
        type=positive,
        metavar="N",
        help="leave out records whose document is longer (default: none are left out)",
    )
    command.add_argument("--seed", type=count, default=0, metavar="N", help="seed of shuffles and edits (default: 0)")


def execute(options: argparse.Namespace) -> ExitCode:
    require_writable(options.output)
    for file in trace_files(options.from_trace) if options.from_trace is not None else ():
        require_other_file(options.output, file, "--from-trace")
    if options.data_dir is not None and is_source(options.output, options.data_dir):
        raise ConfigurationError(
            f"--output {options.output}: is a source file in --data-dir, which would be overwritten"
        )
    request = SourceRequest(
        datasets=tuple(options.datasets),
        data_dir=options.data_dir,
        max_items_per_dataset=options.max_items_per_dataset,
        seed=options.seed,
        context_words=options.context_words,
    )
    transforms = tuple(options.transforms) or _default_transforms(options)
    records = _records(options, request, transforms)
    # Paired transforms draw on the whole corpus; a stream is built record by record.
    corpus = () if transforms == _STREAM else (records := tuple(records))
    context = TransformContext(corpus, options.max_segments, options.min_segment_chars, options.seed)
    counts = BuildCounts(max_context_chars=options.max_context_chars)
    items = iterate_items(records, transforms, context, counts)
    first = next(items, None)
    if first is None:
        raise ConfigurationError(f"nothing could be built from {counts.records} records: {json.dumps(counts.skipped)}")
    write_manifest(options.output, chain([first], items))
    summary = {
        "output": str(options.output),
        "profile": options.profile or "trace",
        "source_records": counts.records,
        "workload_items": counts.items,
        "negative_controls": counts.negative_controls,
        "datasets": list(counts.datasets),
        "transforms": list(transforms),
        "seed": options.seed,
        "skipped": counts.skipped,
        "unread": [asdict(file) for file in request.unread],
        "sha256": manifest_digest(options.output),
    }
    write_out(json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    return ExitCode.OK


def _default_transforms(options: argparse.Namespace) -> tuple[str, ...]:
    if options.from_trace is not None:
        return _RECORDED
    if options.profile == "answers":
        return ANSWERED
    return _STREAM if options.profile == "agent-trace" else PAIRED


def _records(
    options: argparse.Namespace, request: SourceRequest, transforms: tuple[str, ...]
) -> Iterable[SourceRecord]:
    if options.from_trace is not None:
        records = read_trace_records(options.from_trace, options.max_items_per_dataset)
        return records if transforms == _STREAM else with_donors(records)
    return SOURCES.get(options.profile)(request)
