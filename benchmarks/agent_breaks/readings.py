"""What one turn of one session measured on one arm, and the file that an interrupted run continues from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.console import progress
from benchmarks.vllm.client import Position

Arm = Literal["cold", "hit", "stock", "off", "idle"]
ARMS: tuple[Arm, ...] = ("stock", "off", "idle")
Fact = Literal["new", "stale", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One request. ``exact_tokens`` came from the engine's prefix cache, ``reused_tokens`` from a donor.

    ``repaired_tokens``, ``published_tokens`` and ``studied_tokens`` were computed or published between this answer and
    the next turn. KL and ``same_top`` compare with the cold reading of the same prompt along the recorded answer:
    ``same_top`` means the same most likely token at every position, so a greedy answer would equal cold's as far as
    both follow the recorded one. Turns without a cold reading have neither. ``hit`` readings are the break turn as an
    exact hit: on the stock server, everything before the new messages cached, as many new tokens as in the turn.
    """

    arm: Arm
    session: str
    kind: str
    turn: int
    since_break: int | None
    is_first: bool
    is_tool_call: bool
    prompt_tokens: int
    answer_tokens: int
    think_s: float
    ttft_ms: float
    exact_tokens: int
    reused_tokens: int = 0
    outcome: str = ""
    reason: str | None = None
    load_ms: float | None = None
    gap_ms: float | None = None
    repaired_tokens: int = 0
    published_tokens: int = 0
    studied_tokens: int = 0
    kl: tuple[float, ...] | None = None
    same_top: bool | None = None
    fact: Fact | None = None
    load_average: float = 0.0
    block_tokens: int = 16  # of the engine's prefix cache

    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens that the engine or the connector computed before the answer."""
        return self.prompt_tokens - self.exact_tokens - self.reused_tokens

    @property
    def computed_tokens(self) -> int:
        """Everything computed for this turn, its answer aside."""
        return self.prefill_tokens + self.repaired_tokens + self.studied_tokens

    @property
    def is_blended(self) -> bool:
        return self.reused_tokens > 0

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Reading:
        kl = record["kl"]
        return cls(**{**record, "kl": None if kl is None else tuple(kl)})


def is_repaired(reading: Reading) -> bool:
    """Whether all full blocks of prompt and answer were published before the next turn; the last token has no KV."""
    size = reading.block_tokens
    whole = (reading.prompt_tokens + reading.answer_tokens - 1) // size * size
    return reading.exact_tokens + reading.published_tokens >= whole


@dataclass(slots=True)
class ReadingFile:
    """One JSON line per completed session and arm, after a first line with the settings of the run.

    Cold lines keep the distributions, so that later arms can be compared with them after an interruption.
    """

    path: Path
    settings: Mapping[str, Any]

    def read(self, *, resume: bool) -> tuple[list[Reading], dict[tuple[str, int], tuple[Position, ...]]]:
        """Completed readings, and cold distributions by session and turn. Other settings start the file again."""
        readings: list[Reading] = []
        cold: dict[tuple[str, int], tuple[Position, ...]] = {}
        lines = self._lines() if resume else []
        if lines and lines[0] != json.loads(json.dumps(self.settings)):
            progress(f"{self.path.name} is of other settings and is measured again")
            lines = []
        if not lines:
            self.path.parent.mkdir(exist_ok=True)
            self.path.write_text(json.dumps(self.settings) + "\n")
        for line in lines[1:]:
            own = [Reading.from_record(record) for record in line["readings"]]
            readings += own
            for reading, positions in zip(own, line.get("positions", ()), strict=False):
                cold[reading.session, reading.turn] = tuple(
                    Position({int(token): value for token, value in top.items()}, following)
                    for top, following in positions
                )
        return readings, cold

    def add(self, readings: Iterable[Reading], positions: Iterable[Iterable[Position]] = ()) -> None:
        line = {
            "readings": [asdict(reading) for reading in readings],
            "positions": [[(position.top, position.following) for position in own] for own in positions],
        }
        with self.path.open("a") as stream:
            stream.write(json.dumps(line) + "\n")

    def _lines(self) -> list[Any]:
        """Whole lines; what an interrupted write left at the end is dropped."""
        if not self.path.is_file():
            return []
        whole, _, rest = self.path.read_text().rpartition("\n")
        if rest:
            self.path.write_text(whole + "\n")
        return [json.loads(line) for line in whole.split("\n") if line]
