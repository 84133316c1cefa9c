"""What was measured, one line each in a file: an interrupted run continues, and a report needs no servers."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final


@dataclass(frozen=True, slots=True, kw_only=True)
class PairReading:
    """One recipient on one server: cold, with a donor that another server captured, and with the same donor again.

    ``planned_bytes`` is the KV of the reused tokens, ``read_bytes`` what the server read from the store for them. KL is
    the mean over the first positions of the real continuation, against the cold reading.
    """

    size: str
    number: int
    prompt_tokens: int
    cold_ms: float
    remote_ms: float
    local_ms: float
    remote_tokens: int
    local_tokens: int
    read_bytes: int
    planned_bytes: int
    remote_kl: float
    local_kl: float
    load_average: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultReading:
    """One request after or during an event, and its control: the same prompt on the same server just before or after
    it, computed without asking the fleet.

    ``asked``: what the server counted meanwhile: results of searches in the directory and outcomes of fetches from the
    store, such as ``searches found`` and ``fetches missing``. A fetch that hangs is counted when it ends.

    ``queued_ms``: from its arrival in the engine until it was scheduled, by the engine's own metric: an idle server
    waits for the fleet and for nothing else. ``is_wrong``: the answer is neither the cold one nor, if a donor was
    reused, the one that the donor gave before the fault.
    """

    event: str
    number: int
    outcome: str
    reused_tokens: int
    prompt_tokens: int
    first_token_ms: float = 0.0
    control_ms: float = 0.0  # until the control's first token
    queued_ms: float = 0.0
    asked: dict[str, int] = field(default_factory=dict)
    is_failed: bool = False
    is_wrong: bool = False

    @property
    def added_ms(self) -> float:
        """TTFT above that of the control: what asking the fleet cost. Negative where a donor was reused."""
        return self.first_token_ms - self.control_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReading:
    """Seconds from the end of a fault to the first request that reuses a donor of another server.

    ``is_kept``: one that was captured before the fault; otherwise a new one had to be.
    """

    event: str
    seconds: float
    is_kept: bool = False


Reading = PairReading | FaultReading | RecoveryReading
_KINDS: Final = {kind.__name__: kind for kind in (PairReading, FaultReading, RecoveryReading)}


class Readings:
    """``settings`` is what readings of another run must share to be continued."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self._path = path
        self._settings = settings
        self.all: list[Reading] = []
        lines = path.read_text().splitlines() if path.is_file() else []
        if lines and json.loads(lines[0]) == settings:
            for line in lines[1:]:
                record = json.loads(line)
                self.all.append(_KINDS[record.pop("kind")](**record))
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(settings) + "\n")

    def add(self, reading: Reading) -> None:
        self.all.append(reading)
        with self._path.open("a") as stream:
            stream.write(json.dumps({"kind": type(reading).__name__, **asdict(reading)}) + "\n")

    def pairs(self, size: str) -> list[PairReading]:
        return [each for each in self.all if isinstance(each, PairReading) and each.size == size]

    def faults(self, event: str) -> list[FaultReading]:
        return [each for each in self.all if isinstance(each, FaultReading) and each.event == event]

    def recoveries(self, event: str) -> list[RecoveryReading]:
        return [each for each in self.all if isinstance(each, RecoveryReading) and each.event == event]
