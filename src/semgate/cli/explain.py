"""``kvmend explain REQUEST_ID``: why a request was placed on its replica, from decision files or a running router."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sembase.command_line import ExitCode
from sembase.errors import ConfigurationError
from sembase.streams import write_out
from semgate.cli.arguments import extra_needed

if TYPE_CHECKING:
    from semgate.router.state.decisions import DecisionRecord

NAME: Final = "explain"
SUMMARY: Final = "Explain why a request was placed on its replica: evidence, scores, attempts, outcome."
EXAMPLES: Final = """\
  kvmend explain 3f2a0c...                       (the answer's x-request-id; reads outputs/routing)
  kvmend explain 3f2a0c... --log-dir /var/log/semgate/routing --json
  kvmend explain 3f2a0c... --admin-url https://127.0.0.1:8021 --admin-api-key-file admin.key --ca-file ca.pem"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("request_id", metavar="REQUEST_ID", help="x-request-id of the answer")
    command.add_argument(
        "--log-dir",
        type=Path,
        default=Path("outputs/routing"),
        metavar="FOLDER",
        help="folder of the decision files (default: %(default)s)",
    )
    command.add_argument("--admin-url", metavar="URL", help="query the admin surface of a running router instead")
    command.add_argument("--admin-api-key-file", type=Path, metavar="FILE", help="key of that admin surface")
    command.add_argument("--ca-file", type=Path, metavar="FILE", help="certificates (PEM) to trust for its TLS")
    command.add_argument("--json", action="store_true", help="print the record as JSON")


def execute(options: argparse.Namespace) -> ExitCode:
    with extra_needed("gateway", "kvmend explain"):
        from semgate.router.operations.explain import explain  # noqa: PLC0415  (help needs no extra)

        records = _found(options)
    if not records:
        where = options.admin_url or f"{options.log_dir} (--log-dir)"
        raise ConfigurationError(f"no decision for request '{options.request_id}' in {where}")
    for record in records:
        write_out(json.dumps(record.as_record(), indent=1) + "\n" if options.json else explain(record))
    return ExitCode.OK


def _found(options: argparse.Namespace) -> list[DecisionRecord]:
    from semgate.router.operations.explain import fetch_decisions  # noqa: PLC0415
    from semgate.router.operations.settings_check import read_admin_key  # noqa: PLC0415
    from semgate.router.state.decisions import find_decisions  # noqa: PLC0415

    if options.admin_url:
        key = read_admin_key(options.admin_api_key_file)
        return fetch_decisions(options.admin_url, options.request_id, key, options.ca_file)
    if not options.log_dir.is_dir():
        raise ConfigurationError(
            f"no folder '{options.log_dir}'; set --log-dir to the router's routing_output_dir, or use --admin-url"
        )
    return find_decisions(options.log_dir, options.request_id)
