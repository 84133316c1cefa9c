"""Write the reference pages that are derived from code, or, with --check, say which of them is out of date."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from pathlib import Path

from benchmarks.kernels.break_even import reference_table as break_even_table
from scripts.api_page import api_table
from scripts.chart_schema import values_schema
from scripts.command_page import command_help
from scripts.dashboard import dashboard
from scripts.models.known import reference_table as models_table
from scripts.sizing_page import reference_table as sizing_table

from sembase.settings import reference_table
from sembench.metrics import reference_table as metrics_table
from semblend.integration.sglang.options import SglangOptions
from semblend.integration.trtllm.options import TrtllmOptions
from semblend.integration.vllm.options import ConnectorOptions
from semblend.settings import Settings
from semgate.settings import PickerSettings, ProxySettings, RouterSettings

ROOT = Path(__file__).parent.parent
VARIABLES = ("Variable", "Default", "Description")
GATEWAY = ("TOML key (flag)", "Environment", "Default", "Description")
REGIONS = {
    "docs/METRICS.md": ("metrics", metrics_table),
    "docs/reference/settings.md": ("settings", lambda: reference_table(Settings, VARIABLES)),
    "docs/reference/api.md": ("api", api_table),
    "docs/reference/commands.md": ("commands", command_help),
    "docs/operate/sizing.md": ("kv-sizes", sizing_table),
    "docs/reference/break-even.md": ("break-even", break_even_table),
    "docs/reference/test-models.md": ("models", models_table),
    "docs/guides/vllm.md": ("vllm-options", lambda: reference_table(ConnectorOptions)),
    "docs/guides/sglang.md": ("sglang-options", lambda: reference_table(SglangOptions)),
    "docs/guides/tensorrt_llm.md": ("trtllm-options", lambda: reference_table(TrtllmOptions)),
    "docs/reference/proxy.md": ("proxy-settings", lambda: reference_table(ProxySettings, GATEWAY)),
    "docs/reference/pick.md": ("picker-settings", lambda: reference_table(PickerSettings, GATEWAY)),
    "docs/reference/route.md": ("router-settings", lambda: reference_table(RouterSettings, GATEWAY)),
}

# Whole files.
FILES = {
    "deploy/observability/dashboard.json": dashboard,
    "deploy/helm/semgate/values.schema.json": values_schema,
}


def regenerated(page: str, name: str, content: str) -> str:
    """The page with the region ``<!-- generated: name -->`` ... ``<!-- end -->`` replaced."""
    region = re.compile(rf"(?<=<!-- generated: {name} -->\n).*?(?=<!-- end -->)", re.DOTALL)
    text, count = region.subn(lambda _: content, page)
    if count != 1:
        raise SystemExit(f"expected one region '{name}', found {count}")
    return text


def _content(name: str) -> tuple[str, str]:
    region, table = REGIONS[name]
    return region, table()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if a page is out of date")
    arguments = parser.parse_args()
    stale = 0
    for name in (*REGIONS, *FILES):
        path = ROOT / name
        present = path.read_text(encoding="utf-8") if path.exists() else ""
        wanted = FILES[name]() if name in FILES else regenerated(present, *_content(name))
        if present == wanted:
            continue
        stale += 1
        if arguments.check:
            sys.stderr.writelines(difflib.unified_diff(present.splitlines(True), wanted.splitlines(True), name, "code"))
        else:
            path.write_text(wanted, encoding="utf-8")
            print(f"wrote {name}")
    if arguments.check and stale:
        print("reference pages are out of date: run `make docs`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
