"""Listens to the engine's own KV events beside a test: which exact blocks it announced."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripts.engines import vllm
from scripts.private_venv import clean_environment, python_of
from tests.waiting import wait_until

SCRIPT = Path(__file__).with_name("announced_blocks.py")


class Announcements:
    """What was received so far, in order."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def all(self) -> list[dict[str, Any]]:
        text = self._path.read_text(encoding="utf-8")
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def stored_blocks(self, block_tokens: int) -> set[tuple[int, ...]]:
        """Token ids of every announced block."""
        return {
            tuple(event["tokens"][start : start + block_tokens])
            for event in self.all()
            if event["type"] == "BlockStored"
            for start in range(0, len(event["tokens"]), block_tokens)
        }


@contextlib.contextmanager
def listening(endpoint: str) -> Iterator[Announcements]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "announced.jsonl"
        with path.open("wb") as output:
            process = subprocess.Popen(
                [str(python_of(vllm.RECIPE)), "-P", str(SCRIPT), endpoint], stdout=output, env=clean_environment({})
            )
        try:
            announcements = Announcements(path)
            wait_until(lambda: bool(announcements.all()), "the listener did not start")
            yield announcements
        finally:
            process.kill()
            process.wait()
