"""How much must be recomputed to keep a model's answers: questions of each class and length in, budgets out."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from sembase.errors import ConfigurationError
from sembase.files import replace_atomically
from sembase.progress import Advance, count_up
from sembench.http.client import LiveClient
from sembench.http.reply import OK
from sembench.http.request import Endpoint
from sembench.live.item_trials import MOVED, ItemTrials, measure_text, trials_from_json
from sembench.live.options import LiveOptions
from sembench.live.session import RequestBuilder, warm_up
from sembench.manifest import DonorPrompt, WorkloadItem
from sembench.replay.partial import PartialWriter, partial_path, read_partial
from sembench.workload.build import build_items
from sembench.workload.prompt import new_question_of, numbered_prompt
from sembench.workload.record import Question, SourceRecord
from sembench.workload.segment import segments_of
from sembench.workload.sources import SOURCES, SourceRequest
from sembench.workload.transforms import TRANSFORMS, Transform, TransformContext
from semblend.contract import PlanShape
from semblend.contract.answer_budgets import (
    MIN_RIGHT,
    AnswerBudgets,
    Budget,
    Trial,
    decode_budgets,
    encode_budgets,
)
from semblend.contract.model_folder import weights_mark

FRACTIONS: Final = (0.05, 0.1, 0.2)
ITEMS: Final = 100
LENGTHS: Final = (4_096,)
SHORT_TOKENS: Final = 1_536
"""Up to here the default policy counts a prompt as short. Items are near the other end, where most answers are lost."""
_SHORT_ITEM_TOKENS: Final = 1_000
_FILLED: Final = 0.92  # of a length: the text is measured in words
_SAMPLE_WORDS: Final = 400
# A task and a way of reuse for each class.
_CELLS: Final = {
    PlanShape.NEW_INSTRUCTION: ("plain_fact", "instruction_variant"),
    PlanShape.EDIT: ("derived_stated", "field_edit"),
    PlanShape.REORDER: ("plain_fact", "rag_reorder"),
    PlanShape.COMPOSITION: ("plain_fact", "multi_donor_composite"),
}
_IN_A_ROW: Final = 5  # failures, or items without reuse, that end the measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRun:
    """``model_dir`` has the weights that the server at ``base_url`` serves; None: not known."""

    base_url: str
    output: Path
    model_dir: Path | None = None
    model: str | None = None
    classes: tuple[PlanShape, ...] = tuple(PlanShape)
    fractions: tuple[float, ...] = FRACTIONS
    items: int = ITEMS
    lengths: tuple[int, ...] = LENGTHS
    endpoint: Endpoint = "completions"
    max_tokens: int = 8
    headers: tuple[tuple[str, str], ...] = ()
    timeout_s: float = 900.0
    ready_s: float = 60.0
    warm_up: int = 2
    seed: int = 0
    resume: bool = False

    def require_valid(self) -> None:
        if not self.fractions or sorted(set(self.fractions)) != list(self.fractions):
            raise ConfigurationError("--fractions must rise, such as 0.05 0.1 0.2")
        if not self.lengths or sorted(set(self.lengths)) != list(self.lengths):
            raise ConfigurationError("--lengths must rise, such as 4096 8192")
        if self.items < MIN_RIGHT:
            raise ConfigurationError(f"--items must be at least {MIN_RIGHT}: fewer right answers say too little")

    @property
    def engine(self) -> str:
        return "sglang" if self.endpoint == "sglang_generate" else "vllm"

    @property
    def cells(self) -> tuple[tuple[PlanShape, int], ...]:
        """What is measured, short prompts first. Passages in another place are measured in long ones."""
        return tuple(
            (shape, covered)
            for covered in (SHORT_TOKENS, *self.lengths)
            for shape in self.classes
            if (shape in MOVED) == (covered != SHORT_TOKENS)
        )

    def over_tokens(self, covered: int) -> int:
        """A length covers prompts down to the one before it, but no shorter ones than half of itself."""
        if covered == SHORT_TOKENS:
            return 0
        return max(covered // 2, *(length for length in (SHORT_TOKENS, *self.lengths) if length < covered))

    def identity(self, model: str, weights: str | None) -> dict[str, Any]:
        """What must be equal for the rows of two attempts to belong to one measurement; more items continue fewer."""
        return {
            "kind": "answer_budgets",
            "model": model,
            "weights": weights,
            "classes": [shape.value for shape in self.classes],
            "fractions": list(self.fractions),
            "lengths": list(self.lengths),
            "endpoint": self.endpoint,
            "max_tokens": self.max_tokens,
            "seed": self.seed,
        }


class NothingReusedError(ConfigurationError):
    """The server reuses none of the items, so it cannot be measured."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the server reused nothing in {_IN_A_ROW} items in a row ({why})")


class NothingMeasuredError(ConfigurationError):
    """No class has enough right answers; the file is not written."""

    def __init__(self, rows: tuple[ItemTrials, ...]) -> None:
        super().__init__(
            f"no class has {MIN_RIGHT} right cold answers with reuse, so nothing was written; "
            "--resume with more --items continues"
        )
        self.rows = rows


@dataclass(frozen=True, slots=True)
class Measured:
    """The budgets as they were written, and the rows behind them."""

    budgets: AnswerBudgets
    rows: tuple[ItemTrials, ...]


async def measure(run: BudgetRun) -> Measured:
    """Measures what no earlier attempt has, writes the budgets atomically and returns them."""
    run.require_valid()
    mark_of_weights = None if run.model_dir is None else weights_mark(run.model_dir)
    if run.model_dir is not None and mark_of_weights is None:
        raise ConfigurationError(f"{run.model_dir} holds no readable model: name the folder with its config.json")
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            LiveClient(run.base_url, timeout_s=run.timeout_s, max_connections=2, headers=dict(run.headers))
        )
        listed = await client.wait_ready(run.ready_s)
        model = run.model or listed
        options = LiveOptions(endpoint=run.endpoint, recipient_max_tokens=run.max_tokens)
        requests = RequestBuilder(options, model, by_tenant=True)
        await warm_up(client, requests, run.warm_up, client.root_url)
        texts = texts_of(run, await tokens_per_word(client, requests))
        ids = [item.item_id for text in texts for item in text.items]
        partial = partial_path(run.output)
        identity = run.identity(model, mark_of_weights)
        known = read_partial(partial, identity, trials_from_json) if run.resume else []
        rows = {row.item_id: row for row in known}
        with PartialWriter(partial, identity, known) as writer, count_up("answer budgets", len(ids)) as advance:
            advance(len(rows))
            left = [each for text in texts if (each := text.without(rows)) is not None]
            await _measure_all(left, client, requests, run.fractions, rows, writer, advance)
        ordered = tuple(rows[item_id] for item_id in ids)
        found = summarize(ordered, run, model, mark_of_weights)
        if not found.budgets:
            raise NothingMeasuredError(ordered)
        found = found.with_others_of(_earlier(run.output, found), run.cells)
        with replace_atomically(run.output) as stream:
            stream.write(encode_budgets(found).encode())
        writer.discard()
    return Measured(found, ordered)


def _earlier(path: Path, found: AnswerBudgets) -> AnswerBudgets:
    """What the file said before; ``found`` if there is none that can be read."""
    try:
        return decode_budgets(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError, ConfigurationError):
        return found


@dataclass(frozen=True, slots=True)
class Text:
    """Items that ask about one text; ``up_to_tokens`` is the length that their budget will cover."""

    items: tuple[WorkloadItem, ...]
    up_to_tokens: int

    def without(self, measured: Collection[str]) -> Text | None:
        left = tuple(item for item in self.items if item.item_id not in measured)
        return replace(self, items=left) if left else None


def texts_of(run: BudgetRun, per_word: float) -> list[Text]:
    """The texts of every class, short ones first. Several questions about each make a sample cheaper."""
    found: list[Text] = []
    for shape, covered in run.cells:
        dataset, transform = _CELLS[shape]
        tokens = _SHORT_ITEM_TOKENS if covered == SHORT_TOKENS else _FILLED * covered
        request = SourceRequest(
            datasets=(dataset,),
            max_items_per_dataset=run.items,
            seed=run.seed,
            context_words=int(tokens / per_word),
        )
        records = SOURCES.get("answers")(request)
        made, context = TRANSFORMS.get(transform), TransformContext(records, seed=run.seed)
        left = run.items
        for record, other in zip(records, [*records[1:], records[0]], strict=True):
            questions = (record, *map(record.asking, record.more_questions))[:left]
            left -= len(questions)
            items = [item for each in questions if isinstance(item := made(each, context), WorkloadItem)]
            donors = _donors(shape, record, other, context, made)
            found += [Text(_named(items, covered, donors), covered)] if items and donors else []
    return found


def _donors(
    shape: PlanShape, record: SourceRecord, other: SourceRecord, context: TransformContext, made: Transform
) -> tuple[DonorPrompt, ...]:
    """Donors of a record as earlier prompts have it: they ask something else. In those of a composition, a passage of
    another document is before each of its passages.
    """
    asked = record.asking(Question(new_question_of(record), "", ()))
    item = made(asked, context)
    if not isinstance(item, WorkloadItem):
        return ()
    if shape is not PlanShape.COMPOSITION:
        return item.donor_prompts
    own, foreign = (segments_of(each, context.max_segments, context.min_segment_chars) for each in (record, other))
    return tuple(
        replace(donor, text=numbered_prompt(asked, pair, "Document"))
        for donor, pair in zip(item.donor_prompts, zip(foreign, own, strict=True), strict=True)
    )


def _named(items: Sequence[WorkloadItem], covered: int, donors: tuple[DonorPrompt, ...]) -> tuple[WorkloadItem, ...]:
    """The questions about one text have one id; those of another length have the same."""
    return tuple(
        replace(item, item_id=f"{item.item_id}-{covered}-{n}", donor_prompts=donors) for n, item in enumerate(items)
    )


def summarize(rows: Sequence[ItemTrials], run: BudgetRun, model: str, weights: str | None) -> AnswerBudgets:
    """Classes with too few right cold answers are left out: they were not measured. So are items whose cold answer is
    not steady, and those whose tokens were selected by another policy than most, such as where a donor lacks what the
    server's policy needs.
    """
    ((policy, _),) = Counter(row.policy for row in rows if row.policy is not None).most_common(1) or ((None, 0),)
    cells: dict[tuple[PlanShape, int], list[ItemTrials]] = {}
    for row in rows:
        shape = row.measured_shape
        if shape is not None and row.is_steady and row.policy in (None, policy):
            cells.setdefault((shape, row.up_to_tokens), []).append(row)
    budgets = tuple(
        Budget(
            shape,
            run.over_tokens(covered),
            covered,
            min(row.shortest_run or 0 for row in own) if shape in MOVED else 0,
            _trials(own),
        )
        for (shape, covered), own in sorted(cells.items())
        if sum(bool(row.cold_right) for row in own) >= MIN_RIGHT
    )
    return AnswerBudgets(model, weights, run.engine, policy, budgets)


def _trials(rows: Sequence[ItemTrials]) -> tuple[Trial, ...]:
    found = []
    for number, first in enumerate(rows[0].trials):
        own = [row.trials[number] for row in rows]
        speedups = [
            row.cold_ms / trial.ms for row, trial in zip(rows, own, strict=True) if row.cold_ms and trial.ms is not None
        ]
        found.append(
            Trial(
                fraction=first.fraction,
                items=len(rows),
                right=sum(bool(row.cold_right) for row in rows),
                lost=sum(row.is_lost(trial) for row, trial in zip(rows, own, strict=True)),
                gained=sum(row.is_gained(trial) for row, trial in zip(rows, own, strict=True)),
                speedup=statistics.median(speedups) if speedups else None,
            )
        )
    return tuple(found)


async def _measure_all(
    texts: Sequence[Text],
    client: LiveClient,
    requests: RequestBuilder,
    fractions: Sequence[float],
    rows: dict[str, ItemTrials],
    writer: PartialWriter,
    advance: Advance,
) -> None:
    failed = unused = 0
    for text in texts:
        measured = await measure_text(text.items, text.up_to_tokens, client, requests, fractions)
        for row in measured:
            rows[row.item_id] = row
            if row.is_complete:  # others are asked again by --resume
                writer.append(row)
        advance(len(measured))
        first = measured[0]
        failed = failed + 1 if first.cold_right is None else 0
        if failed == _IN_A_ROW:
            raise ConnectionError(
                f"{client.root_url}: {_IN_A_ROW} items in a row failed ({first.why}); see the server's log, then run "
                "again with --resume"
            )
        unused = unused + 1 if first.shape is None else 0
        if unused == _IN_A_ROW:
            raise NothingReusedError(first.why or "")


async def tokens_per_word(client: LiveClient, requests: RequestBuilder) -> float:
    """How the server's tokenizer splits the made-up texts."""
    request = SourceRequest(datasets=("plain_fact",), max_items_per_dataset=1, context_words=_SAMPLE_WORDS)
    records = SOURCES.get("answers")(request)
    (item,) = build_items(records, ("instruction_variant",), TransformContext(records)).items
    reply = await client.ask(requests.recipient(item, "cold"))
    if reply.status != OK:
        raise ConfigurationError(f"{client.root_url} failed the first request: {reply.status} {reply.detail}".rstrip())
    if not reply.prompt_tokens:
        raise ConfigurationError(f"{client.root_url} does not report prompt tokens, so lengths cannot be chosen")
    return reply.prompt_tokens / len(item.recipient_prompt.split())
