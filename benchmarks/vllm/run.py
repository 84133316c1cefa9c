"""One run of the benchmark: a model and gates in, its connector options and its file of rows out."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.engines.specs import native_dtype
from scripts.models.known import KnownModel

from benchmarks.console import RESULTS, progress, write_results
from benchmarks.vllm.arms import Row
from benchmarks.vllm.servers import CORES, OPEN_GATES

GATES = ("default", "open")


@dataclass(frozen=True, slots=True)
class Run:
    """One model with one kind of gates. ``fingerprint`` is what rows of another run must share to be continued."""

    model: KnownModel
    gates: str
    arguments: argparse.Namespace
    texts: str

    @property
    def name(self) -> str:
        return f"{self.arguments.name}-{self.model.name}-{'stock' if self.arguments.stock else self.gates}"

    @property
    def events(self) -> Path:
        return RESULTS / f"{self.name}-events.jsonl"

    @property
    def options(self) -> dict[str, Any]:
        options: dict[str, Any] = dict(OPEN_GATES) if self.gates == "open" else {}
        if self.arguments.recompute_everything:
            options["recompute_all"] = True
        return options | dict(_pair(text) for text in self.arguments.option)

    @property
    def fingerprint(self) -> dict[str, Any]:
        chosen = {name: getattr(self.arguments, name) for name in ("seed", "quality", "stock")}
        return {
            "model": self.model.name,
            "dtype": native_dtype(),
            "cores": CORES,
            "options": self.options,
            "texts": self.texts,
            **chosen,
        }

    def write(self, record: dict[str, Any]) -> Path:
        return write_results(self.name, {"run": self.fingerprint, **record})

    def earlier_rows(self) -> list[Row]:
        """Rows that an interrupted run of the same kind has written; none unless asked to continue it."""
        path = RESULTS / f"{self.name}.json"
        if not self.arguments.resume or not path.is_file():
            return []
        record = json.loads(path.read_text())
        if record.get("run") != self.fingerprint:
            progress(f"{path.name} is of other settings and is measured again")
            return []
        return [Row.from_record(row) for row in record["rows"]]


def _pair(text: str) -> tuple[str, Any]:
    key, _, value = text.partition("=")
    return key, json.loads(value)
