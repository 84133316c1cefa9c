"""Partial rows next to the output, so that an interrupted run can be resumed. The first line identifies the run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

from sembase.errors import ConfigurationError, ContractError

PARTIAL_VERSION: Final = "sembench.partial.v1"


def partial_path(output: Path) -> Path:
    return output.with_name(output.name + ".partial.jsonl")


class Row(Protocol):
    def to_json(self) -> dict[str, Any]: ...


T = TypeVar("T", bound=Row)


def read_partial(path: Path, identity: Mapping[str, Any], read: Callable[[object, str], T]) -> list[T]:
    """The rows of an interrupted run. A half-written last line is dropped; rows of another run are rejected."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    complete = lines[:-1]  # the rest was being written when the run died
    if not complete:
        return []
    try:
        header = json.loads(complete[0])
        rows = [read(json.loads(line), f"{path}:{n}") for n, line in enumerate(complete[1:], start=2)]
    except (json.JSONDecodeError, ContractError) as error:
        raise ConfigurationError(f"{path} is damaged ({error}); delete it and start again without --resume") from None
    if header != {"partial": PARTIAL_VERSION, **identity}:
        raise ConfigurationError(
            f"{path} belongs to a run with another manifest or other settings; delete it or run without --resume"
        )
    return rows


class PartialWriter:
    """Appends rows; each is on disk before the next is computed."""

    def __init__(self, path: Path, identity: Mapping[str, Any], done: Sequence[Row]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        # Rewritten, not appended to: a half-written last line must not remain in the middle.
        self._stream = path.open("w", encoding="utf-8", newline="\n")
        self._write({"partial": PARTIAL_VERSION, **identity})
        for row in done:
            self.append(row)

    def append(self, row: Row) -> None:
        self._write(row.to_json())

    def discard(self) -> None:
        """Deletes the file once the result is written."""
        self._stream.close()
        self._path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stream.close()

    def _write(self, record: Mapping[str, Any]) -> None:
        self._stream.write(json.dumps(record, ensure_ascii=False, sort_keys=True, allow_nan=False) + "\n")
        self._stream.flush()
