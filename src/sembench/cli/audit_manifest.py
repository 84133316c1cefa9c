"""``kvmend bench audit-manifest``: find faults in a manifest that would make its figures wrong."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Final

from sembase.command_line import ExitCode, existing_file
from sembase.streams import write_out
from sembase.tokenizer import open_tokenizer
from sembench.audit.manifest import audit_items
from sembench.manifest import iterate_manifest, manifest_digest

NAME: Final = "audit-manifest"
SUMMARY: Final = "Check a manifest: ids, donors, tenants, dropped text, negative controls that are not negative."


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--manifest", required=True, type=existing_file, metavar="FILE", help="a manifest of kvmend bench build"
    )
    command.add_argument(
        "--tokenizer",
        metavar="PATH",
        help="a model's tokenizer.json or its directory (default: a built-in tokenizer, which is not a model's)",
    )


def execute(options: argparse.Namespace) -> ExitCode:
    audit = audit_items(iterate_manifest(options.manifest), open_tokenizer(options.tokenizer))
    passed = audit.items > 0 and not audit.violations
    report = {
        "manifest": str(options.manifest),
        "sha256": manifest_digest(options.manifest),
        "passed": passed,
        **asdict(audit),
    }
    write_out(json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    return ExitCode.OK if passed else ExitCode.GATE_FAILED
