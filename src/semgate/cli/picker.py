"""``kvmend pick``: picks endpoints for Envoy and gateways built on it until stopped."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from sembase.command_line import ExitCode
from semgate.cli.arguments import add_settings, extra_needed, given_flags, settings_from
from semgate.logs import start_logs
from semgate.settings import PickerSettings, config_path, load

NAME: Final = "picker"
SUMMARY: Final = "Pick endpoints for Envoy, Istio and other gateways: Endpoint Picker Protocol v1 (extra: picker)."
EXAMPLES: Final = """\
  kvmend pick --replicas http://10.0.0.7:8000,http://10.0.0.8:8000
  kvmend pick --discovery kubernetes --kubernetes-service vllm --port 9002 --status-port 9003
  kvmend pick --config semgate.toml --admin-port 8021 --admin-api-key-file admin.key

Settings of forwarding (timeouts of answers, retries) belong to the data plane and have no effect here.
signals: SIGTERM and Ctrl-C wait for open requests; SIGHUP reloads the replicas"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_settings(command, PickerSettings)


def execute(options: argparse.Namespace) -> ExitCode:
    settings = settings_from(options, PickerSettings)
    with extra_needed("picker", "kvmend pick"):
        from sembase.http.server import run  # noqa: PLC0415  (help needs no extra)
        from semgate.picker.service import serve  # noqa: PLC0415

    flags, config = given_flags(options, PickerSettings), config_path(options.config)
    start_logs(settings.log_level, sys.stderr)
    run(serve(settings, reload_settings=lambda: load(PickerSettings, flags, config=config), config=config))
    return ExitCode.OK
