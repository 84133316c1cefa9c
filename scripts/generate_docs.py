"""Write the reference pages that are derived from code, or, with --check, say which of them is out of date."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from pathlib import Path

from scripts.api_page import api_table

from sembench.metrics import reference_table as metrics_table
from semblend.integration.sglang.options import reference_table as sglang_options_table
from semblend.integration.trtllm.options import reference_table as trtllm_options_table
from semblend.integration.vllm.options import reference_table as vllm_options_table
from semblend.settings import reference_table as settings_table
from semgate.settings import ProxySettings, RouterSettings
from semgate.settings import reference_table as gateway_table

ROOT = Path(__file__).parent.parent
REGIONS = {
    "docs/METRICS.md": ("metrics", metrics_table),
    "docs/reference/settings.md": ("settings", settings_table),
    "docs/reference/api.md": ("api", api_table),
    "docs/guides/vllm.md": ("vllm-options", vllm_options_table),
    "docs/guides/sglang.md": ("sglang-options", sglang_options_table),
    "docs/guides/tensorrt_llm.md": ("trtllm-options", trtllm_options_table),
    "docs/reference/semgate-proxy.md": ("proxy-settings", lambda: gateway_table(ProxySettings)),
    "docs/reference/semgate-router.md": ("router-settings", lambda: gateway_table(RouterSettings)),
}


def regenerated(page: str, name: str, content: str) -> str:
    """The page with the region ``<!-- generated: name -->`` ... ``<!-- end -->`` replaced."""
    region = re.compile(rf"(?<=<!-- generated: {name} -->\n).*?(?=<!-- end -->)", re.DOTALL)
    text, count = region.subn(lambda _: content, page)
    if count != 1:
        raise SystemExit(f"expected one region '{name}', found {count}")
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if a page is out of date")
    arguments = parser.parse_args()
    stale = 0
    for name, (region, table) in REGIONS.items():
        path = ROOT / name
        present = path.read_text(encoding="utf-8")
        wanted = regenerated(present, region, table())
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
