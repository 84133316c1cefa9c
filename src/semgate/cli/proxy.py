"""``kvmend proxy``: passes OpenAI traffic to one upstream and writes trace records until interrupted."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from sembase.command_line import ExitCode
from sembase.streams import write_err
from semgate.cli.arguments import add_settings, extra_needed, settings_from
from semgate.logs import start_logs
from semgate.settings import ProxySettings

NAME: Final = "proxy"
SUMMARY: Final = "Pass OpenAI traffic through to one server and write trace records without text (extra: gateway)."
EXAMPLES: Final = """\
  kvmend proxy --upstream-base-url http://127.0.0.1:8001
  SEMANTICKV_UPSTREAM_BASE_URL=http://127.0.0.1:8001 kvmend proxy --port 8010 --trace-output-dir outputs/live_traces"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_settings(command, ProxySettings)


def execute(options: argparse.Namespace) -> ExitCode:
    settings = settings_from(options, ProxySettings)
    with extra_needed("gateway", "kvmend proxy"):
        from sembase.http.server import run  # noqa: PLC0415  (help needs no extra)
        from semgate.proxy.service import serve  # noqa: PLC0415
    start_logs(settings.log_level, sys.stderr)

    def announce(port: int) -> None:
        scheme = "https" if settings.tls_cert_file is not None else "http"
        write_err(f"semgate: proxy on {scheme}://{settings.host}:{port} for {settings.upstream_base_url}\n")

    run(serve(settings, announce))
    return ExitCode.OK
