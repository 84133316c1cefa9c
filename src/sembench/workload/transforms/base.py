"""Inputs and outputs shared by all transforms.

Every transform keeps the complete, unaltered source text in the recipient. Edits are applied to the donor, as if it
were an earlier revision of the document. So the recipient always contains the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sembench.manifest import DonorPrompt, WorkloadItem, donor_id_for, item_id_for
from sembench.workload.prompt import question_of
from sembench.workload.record import SourceRecord
from sembench.workload.seeded import Draws

TENANT: Final = "tenant-a"
TEMPLATE: Final = "rag-template-v1"


@dataclass(frozen=True, slots=True)
class TransformContext:
    """What a transform sees besides its record: the whole corpus (for negatives) and the build's settings."""

    corpus: Sequence[SourceRecord]
    max_segments: int = 4
    min_segment_chars: int = 400
    seed: int = 0

    def draws(self, record: SourceRecord, transform: str) -> Draws:
        return Draws(self.seed, record.dataset, record.source_id, transform)


@dataclass(frozen=True, slots=True)
class Skipped:
    """The transform cannot be applied to the record; the build counts and prints the reason."""

    reason: str


Transform = Callable[[SourceRecord, TransformContext], WorkloadItem | Skipped]


def make_item(
    record: SourceRecord,
    transform: str,
    recipient: str,
    donors: Sequence[str | DonorPrompt],
    *,
    exact: bool,
    semantic: bool,
    materialize: bool,
    negative: bool = False,
    segments: Sequence[str] = (),
    extra: dict[str, Any] | None = None,
) -> WorkloadItem:
    """An item with its ids and the expectations every transform has to state."""
    item_id = item_id_for(record.dataset, record.source_id, transform)
    metadata: dict[str, Any] = {
        **record.metadata,
        "expected_exact": exact,
        "expected_semantic": semantic,
        "expected_materialize": materialize,
        "tenant": TENANT,
        "template": TEMPLATE,
        "segment_count": len(segments) or 1,
        **(extra or {}),
    }
    return WorkloadItem(
        item_id=item_id,
        dataset=record.dataset,
        source_id=record.source_id,
        transform=transform,
        recipient_prompt=recipient,
        donor_prompts=tuple(
            donor
            if isinstance(donor, DonorPrompt)
            else DonorPrompt(donor_id=donor_id_for(item_id), text=donor, metadata={"tenant": TENANT})
            for donor in donors
        ),
        input=question_of(record) if not record.verbatim else record.question,
        answers=record.answers,
        negative_control=negative,
        metadata=metadata,
    )
