"""What a plan was expected to take beside what it took, and served requests beside their cold twins, on a real server.

Every item has a document of its own, asked once before; the recipient has a new head, gaps and a new question. Cold,
ours and cold again follow each other in rotating order, so cold beside cold shows the noise. Default options.
"""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from scripts.engines.specs import vllm_missing

from benchmarks.console import RESULTS, progress, show_table, write_results
from benchmarks.corpus import load_corpus
from benchmarks.documents import DEFAULT_TEXTS
from benchmarks.estimates import Quartiles
from benchmarks.vllm.client import Ask
from benchmarks.vllm.servers import Subject, with_connector

LENGTHS: Final = (1_200, 2_000, 4_000, 7_400)
SLOWER: Final = 1.05
DONOR_TIMEOUT_S: Final = 30.0
COLD, OURS, AGAIN = "cold", "ours", "cold again"
ARMS: Final = (COLD, OURS, AGAIN)
Tokens = list[int]


@dataclass(frozen=True, slots=True)
class Shape:
    """Tokens that are new: before the document, in each of ``gaps`` inside it, and after it. ``kept``: of it."""

    head: int = 60
    gaps: int = 0
    gap: int = 0
    question: int = 40
    kept: float = 1.0


SHAPES: Final = {
    "new head": Shape(),
    "long head": Shape(head=400),
    "long question": Shape(question=400),
    "five gaps": Shape(gaps=5, gap=30),
    "half of the document": Shape(kept=0.5),
    "long question, half": Shape(question=400, kept=0.5),
}


@dataclass(frozen=True, slots=True)
class Row:
    """Milliseconds to the first token and processor milliseconds of the server, by arm."""

    tokens: int
    shape: str
    first_ms: dict[str, float]
    cpu_ms: dict[str, float]
    outcome: str
    reason: str | None
    predicted_ms: float | None
    saved_ms: float | None
    taken_ms: float | None

    @property
    def is_served(self) -> bool:
        return self.taken_ms is not None

    def ratio(self, arm: str, clock: str) -> float:
        times: dict[str, float] = getattr(self, clock)
        return times[arm] / times[COLD]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vllm.worth", description=__doc__)
    parser.add_argument("--texts", type=Path, default=DEFAULT_TEXTS, help="folder of the texts (default: %(default)s)")
    parser.add_argument("--n", type=int, default=5, help="items per length and shape (default: 5)")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="tokens of the documents")
    chosen = parser.parse_args()
    if why := vllm_missing():
        progress(why)
        return 3
    documents = [each.tokens.tolist() for each in load_corpus(chosen.texts).documents]
    with with_connector({}, RESULTS / "worth.events.jsonl") as subject:
        rows = list(measure(subject, documents, chosen.lengths, chosen.n))
    path = write_results(
        "worth", {"lengths": list(chosen.lengths), "n": chosen.n, "rows": [asdict(row) for row in rows]}
    )
    show(rows)
    progress(f"written: {path.name} in {path.parent.name}/")
    return 0


def measure(subject: Subject, documents: Sequence[Tokens], lengths: Sequence[int], n: int) -> Iterator[Row]:
    draws = random.Random(1)
    long = [each for each in documents if len(each) > max(lengths) + 3_000]
    for number in range(n):
        for length in lengths:
            for name, shape in SHAPES.items():
                document, *others = draws.sample(long, 3)
                yield _item(subject, name, shape, document[:length], others, number)
        progress(f"{number + 1} of {n} items per length and shape")


def _item(subject: Subject, name: str, shape: Shape, document: Tokens, others: Sequence[Tokens], number: int) -> Row:
    client, happenings = subject.client, subject.happenings
    assert happenings is not None
    fresh = iter(others[0])
    salt = f"{name} {len(document)} {number}".replace(",", "")
    donor = client.whole(Ask([*others[1][:50], *document, *others[1][50:90]], 1, salt, reuse=False, capture=True))
    poke = Ask(others[1][100:110], 1, "poke", reuse=False)
    if not happenings.wait_for_donor(donor.request_id, lambda: client.whole(poke), DONOR_TIMEOUT_S):
        raise RuntimeError(f"the donor of {salt} was never stored")
    prompt = _recipient(shape, document, fresh)
    first_ms, cpu_ms, asked = {}, {}, ""
    for arm in (ARMS[(number + place) % len(ARMS)] for place in range(len(ARMS))):
        client.reset_exact_cache()
        before = _cpu_ms(subject.server.pid)
        reply = client.timed(Ask(prompt, 1, salt, reuse=arm == OURS))
        first_ms[arm], cpu_ms[arm] = reply.first_token_ms, _cpu_ms(subject.server.pid) - before
        asked = reply.request_id if arm == OURS else asked
    found = happenings.result(asked)
    taken = None if found.load_ms is None or found.compute_ms is None else found.load_ms + found.compute_ms
    return Row(
        len(document),
        name,
        first_ms,
        cpu_ms,
        str(found.outcome),
        found.reason,
        found.predicted_ms,
        found.saved_ms,
        taken,
    )


def _recipient(shape: Shape, document: Tokens, fresh: Iterator[int]) -> Tokens:
    def new(tokens: int) -> Tokens:
        return [next(fresh) for _ in range(tokens)]

    kept = document[: int(len(document) * shape.kept)]
    prompt, step = new(shape.head), len(kept) // (shape.gaps + 1)
    for piece in range(shape.gaps + 1):
        prompt += kept[piece * step : (piece + 1) * step]
        prompt += new(shape.gap) if piece < shape.gaps else []
    return prompt + new(len(document) - len(kept)) + new(shape.question)


def _cpu_ms(leader: int) -> float:
    """Processor time of the server's processes, which are one group."""
    ticks = 0
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        if int(fields[2]) == leader:
            ticks += int(fields[11]) + int(fields[12])
    return 1e3 * ticks / os.sysconf("SC_CLK_TCK")


def show(rows: Sequence[Row]) -> None:
    cells = []
    for key in sorted({(row.tokens, row.shape) for row in rows}):
        cell = [row for row in rows if (row.tokens, row.shape) == key]
        served = [row for row in cell if row.is_served]
        reasons = sorted({str(row.reason) for row in cell if not row.is_served})
        cells.append((*key, f"{len(served)} of {len(cell)}", ", ".join(reasons), *_figures(served)))
    columns = ("tokens", "shape", "served", "declined", "cold ms", "ours / cold", "processor", "measured / predicted")
    show_table("By length and shape", columns, cells)
    served = [row for row in rows if row.is_served]
    for clock, word in (("first_ms", "TTFT"), ("cpu_ms", "processor time")):
        slower = {arm: sum(row.ratio(arm, clock) > SLOWER for row in served) for arm in (OURS, AGAIN)}
        progress(
            f"{word}: of {len(served)} served requests {slower[OURS]} more than 5 % above their cold twin; "
            f"cold again above cold {slower[AGAIN]}"
        )
    errors = Quartiles.of([row.taken_ms / row.predicted_ms for row in served if row.predicted_ms and row.taken_ms])
    if errors is not None:
        progress(f"measured over predicted: {errors.shown('{:.2f}')}, n = {errors.n}")


def _figures(served: Sequence[Row]) -> tuple[Any, ...]:
    if not served:
        return "", "", "", ""
    taken = [row.taken_ms / row.predicted_ms for row in served if row.predicted_ms and row.taken_ms]
    return (
        f"{median(row.first_ms[COLD] for row in served):.0f}",
        f"{median(row.ratio(OURS, 'first_ms') for row in served):.2f}",
        f"{median(row.ratio(OURS, 'cpu_ms') for row in served):.2f}",
        f"{median(taken):.2f}" if taken else "",
    )


if __name__ == "__main__":
    raise SystemExit(main())
