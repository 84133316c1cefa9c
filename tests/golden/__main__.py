"""Compare the flows with their golden files, or accept what they give: ``python -m tests.golden --write [FLOW ...]``.

Run with ``.engines/vllm/bin/python`` for the flow of the scheduler; flows with servers are written if they are named.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.conformance.conftest import pytest_sessionfinish as stop_servers
from tests.golden.compare import difference, write
from tests.golden.flows import ENGINE_FLOWS, FLOWS


def main() -> int:
    options = _options()
    changed = 0
    for name in options.flows or FLOWS:
        with tempfile.TemporaryDirectory() as folder:
            found = (FLOWS | ENGINE_FLOWS)[name](Path(folder))
        if isinstance(found, str):
            print(f"skipped {name}: {found}")
            continue
        for file, text in found.items():
            if shown := difference(file, text):
                changed += 1
                print(f"written: {file}" if options.write and write(file, text) else shown)
    stop_servers()
    print(f"{changed} files differ")
    return 1 if changed and not options.write else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="accept the differences")
    parser.add_argument("flows", nargs="*", metavar="FLOW", help=f"{', '.join([*FLOWS, *ENGINE_FLOWS])}")
    options = parser.parse_args()
    if unknown := set(options.flows) - FLOWS.keys() - ENGINE_FLOWS.keys():
        parser.error(f"no such flow: {', '.join(sorted(unknown))}")
    return options


if __name__ == "__main__":
    sys.exit(main())
