"""``python -m scripts.count_live_files``: the source files that one manifest passes through in ``run-live-gateway``.

Runs the built-in fixture, paired, against the fake engine of ``tests/fakes`` in its own process. A file under ``src``
counts when one of its functions is called; importing it does not count, nor does the hook that imports call. Each file
is counted once, in the first stage that needs it: ``replay`` (manifest to rows on disk), ``result`` (rows to result
file), ``command`` (the command line before and the tables after).
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from tests.fakes.blending_server import running

from sembase.streams import write_out
from sembench.cli.main import main as sembench

SOURCES: Final = str(Path(__file__).parent.parent / "src") + "/"
_IMPORT_HOOK: Final = "sembase/former_modules.py"
STAGES: Final = ("replay", "result", "command")
_BEGINS: Final = {"replay_manifest": "replay", "assemble": "result", "live_tables": "command"}


@contextmanager
def traced_stages(found: dict[str, str]) -> Iterator[None]:
    """Fills ``found``: each source file of which a function is called, in any thread, and the first stage it serves."""
    stage = "command"

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal stage
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCES) and code.co_name != "<module>":
            stage = _BEGINS.get(code.co_name, stage)
            name = code.co_filename[len(SOURCES) :]
            if name == _IMPORT_HOOK:
                return
            if STAGES.index(stage) < STAGES.index(found.get(name, "command")) or name not in found:
                found[name] = stage

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def files_of_a_live_run() -> dict[str, str]:
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        manifest, result = str(Path(folder, "manifest.jsonl")), str(Path(folder, "result.json"))
        sembench(["build", "--profile", "fixture", "--output", manifest])
        with running() as url:
            flags = ["--paired", "--capture-logprobs", "--warm-up", "1", "--max-items", "3"]
            with traced_stages(found):
                code = sembench(
                    ["run-live-gateway", "--manifest", manifest, "--output", result, "--gateway-url", url, *flags]
                )
    if code:
        raise SystemExit(code)
    return found


def main() -> None:
    found = files_of_a_live_run()
    for stage in STAGES:
        names = sorted(name for name in found if found[name] == stage)
        write_out(f"{stage}: {len(names)} files\n" + "".join(f"  {name}\n" for name in names))


if __name__ == "__main__":
    main()
