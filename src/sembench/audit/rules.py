"""The rules, one function each. In: an item and its tokens. Out: messages about what is wrong with it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sembase.tokenizer import Tokenizer
from sembench.manifest import WorkloadItem, item_id_for, tenant_of
from sembench.replay.windows import RUN_TOKENS, WindowIndex

NEGATIVE_RUN_TOKENS: Final = 32
_SEEN_RUN_TOKENS: Final = 16
_DROPPED_TOKENS: Final = 64
_WHOLE_DOCUMENT: Final = frozenset(
    {
        "exact_repeat",
        "instruction_variant",
        "same_evidence_new_task",
        "leading_evidence_new_task",
        "rag_reorder",
        "multi_donor_composite",
    }
)
_SPACE: Final = re.compile(r"\s+")


class Subject:
    """An item under audit. It is tokenized once, and only if a rule needs the tokens."""

    def __init__(self, item: WorkloadItem, tokenizer: Tokenizer) -> None:
        self.item = item
        self._tokenizer = tokenizer

    @cached_property
    def recipient(self) -> NDArray[np.int64]:
        return self._tokenizer.encode(self.item.recipient_prompt).ids

    @cached_property
    def donors(self) -> list[NDArray[np.int64]]:
        return [self._tokenizer.encode(donor.text).ids for donor in self.item.donor_prompts]

    @cached_property
    def donor_documents(self) -> list[NDArray[np.int64]]:
        """The donors without their own request, if the manifest records it."""
        texts = []
        for donor in self.item.donor_prompts:
            request = str(donor.metadata.get("request", ""))
            place = donor.text.rfind(request) if request else -1
            texts.append(donor.text if place < 0 else donor.text[:place])
        return [self._tokenizer.encode(text).ids for text in texts]


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    check: Callable[[Subject], Iterator[str]]


def empty_recipient(subject: Subject) -> Iterator[str]:
    if not subject.item.recipient_prompt.strip():
        yield "the recipient prompt is empty"


def wrong_item_id(subject: Subject) -> Iterator[str]:
    item = subject.item
    expected = item_id_for(item.dataset, item.source_id, item.transform)
    if item.item_id != expected:
        yield f"dataset, source_id and transform give {expected}"


def missing_donors(subject: Subject) -> Iterator[str]:
    item = subject.item
    if not item.is_stream and not item.donor_prompts:
        yield "no donor, and not part of a stream: nothing can be found"
    if any(not donor.text.strip() for donor in item.donor_prompts):
        yield "a donor is empty"


def stream_with_donors(subject: Subject) -> Iterator[str]:
    if subject.item.is_stream and subject.item.donor_prompts:
        yield "part of a stream, whose donors are the earlier recipients, but has donors of its own"


def duplicate_donor_id(subject: Subject) -> Iterator[str]:
    counts = Counter(donor.donor_id for donor in subject.item.donor_prompts)
    yield from (f"donor_id {donor_id} occurs {n} times" for donor_id, n in counts.items() if n > 1)


def tenant_missing(subject: Subject) -> Iterator[str]:
    if subject.item.tenant is None:
        yield "metadata has no tenant"


def cross_tenant_same_tenant(subject: Subject) -> Iterator[str]:
    item = subject.item
    if item.transform == "cross_tenant" and any(
        tenant_of(donor.metadata) in (None, item.tenant) for donor in item.donor_prompts
    ):
        yield f"a donor has no tenant, or the recipient's tenant '{item.tenant}'"


def cross_tenant_other_text(subject: Subject) -> Iterator[str]:
    """With different text a leak between tenants would not be visible."""
    item = subject.item
    if item.transform == "cross_tenant" and any(donor.text != item.recipient_prompt for donor in item.donor_prompts):
        yield "a donor's text differs from the recipient's: a leak between tenants would not be found"


def negative_not_marked(subject: Subject) -> Iterator[str]:
    item = subject.item
    if item.transform in ("negative_control", "cross_tenant") and not item.negative_control:
        yield "a negative transform, but negative_control is false: false matches would count as reuse"
    if item.negative_control and item.metadata.get("expected_materialize") is True:
        yield "a negative control that expects materialization"


def negative_shares_run(subject: Subject) -> Iterator[str]:
    """A negative control must not share text with its donors. Donors of another tenant share it on purpose."""
    if not subject.item.negative_control:
        return
    for donor, ids in zip(subject.item.donor_prompts, subject.donors, strict=True):
        if subject.item.tenant_of_donor(donor) != subject.item.tenant:
            continue
        index = WindowIndex(NEGATIVE_RUN_TOKENS)
        index.add(ids)
        shared = int(index.covered(subject.recipient).sum())
        if shared:
            yield f"shares {shared} tokens in runs of at least {NEGATIVE_RUN_TOKENS} with donor {donor.donor_id}"


def answer_dropped(subject: Subject) -> Iterator[str]:
    """The donor, built from the same source, holds the answer, but the recipient does not."""
    item = subject.item
    if item.negative_control:
        return
    recipient = _squeezed(item.recipient_prompt)
    donors = [_squeezed(donor.text) for donor in item.donor_prompts]
    for answer in item.answers:
        wanted = _squeezed(answer)
        if wanted and wanted not in recipient and any(wanted in donor for donor in donors):
            yield f"the answer {answer[:60]!r} is in a donor but not in the recipient"


def segment_dropped(subject: Subject) -> Iterator[str]:
    """A recipient that should hold the whole document lacks a long run of a donor's tokens."""
    if subject.item.transform not in _WHOLE_DOCUMENT:
        return
    index = WindowIndex(_SEEN_RUN_TOKENS)
    index.add(subject.recipient)
    for donor, ids in zip(subject.item.donor_prompts, subject.donor_documents, strict=True):
        missing = _longest_gap(index.covered(ids))
        if missing > _DROPPED_TOKENS:
            yield f"{missing} tokens in a row of donor {donor.donor_id} are missing from the recipient"


def segment_count_wrong(subject: Subject) -> Iterator[str]:
    item = subject.item
    if item.transform == "multi_donor_composite" and item.metadata.get("segment_count") != len(item.donor_prompts):
        yield f"segment_count is {item.metadata.get('segment_count')!r} with {len(item.donor_prompts)} donors"


def edit_out_of_range(subject: Subject) -> Iterator[str]:
    item = subject.item
    edits = item.metadata.get("edits", [])
    if not isinstance(edits, list) or (edits and len(item.donor_prompts) != 1):
        yield "edits must be a list and belong to exactly one donor"
        return
    for number, edit in enumerate(edits):
        spans = _spans(edit)
        if spans is None:
            yield f"edits[{number}] is not {{'donor': [a, b], 'recipient': [c, d]}}"
            continue
        (a, b), (c, d) = spans
        donor = item.donor_prompts[0].text
        if not (0 <= a <= b <= len(donor) and 0 <= c <= d <= len(item.recipient_prompt)):
            yield f"edits[{number}] lies outside its prompt"
        elif donor[a:b] == item.recipient_prompt[c:d]:
            yield f"edits[{number}] changes nothing"


def hard_negative_without_edit(subject: Subject) -> Iterator[str]:
    if subject.item.metadata.get("hard_negative") is True and not subject.item.metadata.get("edits"):
        yield "a hard negative without edit positions: reuse of changed tokens could not be detected"


def short_recipient(subject: Subject) -> Iterator[str]:
    """The prompt is shorter than the minimum run, so nothing can be planned: it only lowers the rates."""
    if subject.item.recipient_prompt.strip() and len(subject.recipient) < RUN_TOKENS:
        yield f"the recipient has {len(subject.recipient)} tokens; below {RUN_TOKENS} nothing is ever planned"


RULES: Final = tuple(
    Rule(check.__name__, check)
    for check in (
        empty_recipient,
        wrong_item_id,
        missing_donors,
        stream_with_donors,
        duplicate_donor_id,
        tenant_missing,
        cross_tenant_same_tenant,
        cross_tenant_other_text,
        negative_not_marked,
        negative_shares_run,
        answer_dropped,
        segment_dropped,
        segment_count_wrong,
        edit_out_of_range,
        hard_negative_without_edit,
    )
)


WARNINGS: Final = (Rule(short_recipient.__name__, short_recipient),)


def _squeezed(text: str) -> str:
    return _SPACE.sub(" ", text).strip().lower()


def _longest_gap(covered: NDArray[np.bool_]) -> int:
    edges = np.flatnonzero(np.diff(np.concatenate([[True], covered, [True]]).astype(np.int8)))
    return int((edges[1::2] - edges[::2]).max(initial=0))


def _spans(edit: Any) -> tuple[tuple[int, int], tuple[int, int]] | None:
    if not isinstance(edit, dict) or set(edit) != {"donor", "recipient"}:
        return None
    found = []
    for key in ("donor", "recipient"):
        span = edit[key]
        if not isinstance(span, list) or len(span) != 2 or any(type(place) is not int for place in span):
            return None
        found.append((span[0], span[1]))
    return found[0], found[1]
