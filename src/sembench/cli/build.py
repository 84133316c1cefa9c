"""``sembench build``: records of a profile -> transforms -> a manifest."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Final

from sembase.command_line import ExitCode
from sembase.errors import ConfigurationError
from sembase.streams import write_out
from sembase.values import count, positive
from sembench.cli.output import require_writable
from sembench.manifest import manifest_digest, write_manifest
from sembench.workload.build import build_items
from sembench.workload.readers.files import is_source
from sembench.workload.sources import BUILT_IN, SOURCES, SourceRequest
from sembench.workload.transforms import PAIRED, TransformContext

NAME: Final = "build"
SUMMARY: Final = "Build a manifest of donors and recipients, or of a stream, from a corpus."
_STREAMED: Final = frozenset({"agent-trace"})


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("--profile", required=True, choices=list(BUILT_IN), help="where the source records come from")
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
        help=f"transforms applied to each record (default: {' '.join(PAIRED)}; for agent-trace: stream)",
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
    command.add_argument("--seed", type=count, default=0, metavar="N", help="seed of shuffles and edits (default: 0)")


def execute(options: argparse.Namespace) -> ExitCode:
    require_writable(options.output)
    if options.data_dir is not None and is_source(options.output, options.data_dir):
        raise ConfigurationError(
            f"--output {options.output}: is a source file in --data-dir, which would be overwritten"
        )
    request = SourceRequest(
        datasets=tuple(options.datasets),
        data_dir=options.data_dir,
        max_items_per_dataset=options.max_items_per_dataset,
        seed=options.seed,
    )
    records = SOURCES.get(options.profile)(request)
    transforms = tuple(options.transforms) or (("stream",) if options.profile in _STREAMED else PAIRED)
    context = TransformContext(records, options.max_segments, options.min_segment_chars, options.seed)
    built = build_items(records, transforms, context)
    if not built.items:
        raise ConfigurationError(f"nothing could be built from {len(records)} records: {json.dumps(built.skipped)}")
    write_manifest(options.output, built.items)
    summary = {
        "output": str(options.output),
        "profile": options.profile,
        "source_records": len(records),
        "workload_items": len(built.items),
        "datasets": list(dict.fromkeys(record.dataset for record in records)),
        "transforms": list(transforms),
        "seed": options.seed,
        "skipped": built.skipped,
        "unread": [asdict(file) for file in request.unread],
        "sha256": manifest_digest(options.output),
    }
    write_out(json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    return ExitCode.OK
