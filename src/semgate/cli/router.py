"""``kvmend route``: routes requests to replicas until stopped."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import Final

from sembase.command_line import ExitCode
from semgate.cli.arguments import add_settings, extra_needed, given_flags, settings_from
from semgate.logs import start_logs
from semgate.settings import RouterSettings, config_path, load

NAME: Final = "router"
SUMMARY: Final = "Route OpenAI-compatible requests to the replica that holds their KV, with health checks and retries."
EXAMPLES: Final = """\
  kvmend route --replicas http://localhost:8101,http://localhost:8102
  kvmend route --routing-policy precise_prefix --tokenizer model/ \\
      --replicas 'http://localhost:8101;events=tcp://localhost:5557;replay=tcp://localhost:5558'
  kvmend route --config semgate.toml --admin-port 8021 --admin-api-key-file admin.key

signals: SIGTERM and Ctrl-C wait for open streams (a second one does not wait); SIGHUP reloads the replicas"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_settings(command, RouterSettings)


def execute(options: argparse.Namespace) -> ExitCode:
    settings = settings_from(options, RouterSettings)
    with extra_needed("gateway", "kvmend route"):
        from sembase.http.server import run  # noqa: PLC0415  (help needs no extra)
        from semgate.router.service import serve  # noqa: PLC0415  (its compiled loops are 70 MB that the proxy does not need)

    flags, config = given_flags(options, RouterSettings), config_path(options.config)
    start_logs(settings.log_level, sys.stderr)
    reload_settings = partial(load, RouterSettings, flags, config=config)
    run(serve(settings, reload_settings=reload_settings, config=config))
    return ExitCode.OK
