"""Applies the rules to every item, and the rules that need all items at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from sembase.tokenizer import Tokenizer
from sembench.audit.rules import RULES, WARNINGS, Subject
from sembench.manifest import WorkloadItem


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str
    item_id: str
    detail: str


@dataclass(frozen=True, slots=True)
class Audit:
    """``warnings`` do not fail the audit: the figures are valid, but may be less informative than expected."""

    items: int
    negative_controls: int
    transforms: dict[str, int]
    violations: tuple[Violation, ...]
    warnings: tuple[Violation, ...] = ()


def audit_items(items: Iterable[WorkloadItem], tokenizer: Tokenizer) -> Audit:
    violations: list[Violation] = []
    warnings: list[Violation] = []
    seen: Counter[str] = Counter()
    transforms: Counter[str] = Counter()
    negatives = 0
    for item in items:
        seen[item.item_id] += 1
        transforms[item.transform] += 1
        negatives += item.negative_control
        subject = Subject(item, tokenizer)
        violations += [Violation(rule.name, item.item_id, detail) for rule in RULES for detail in rule.check(subject)]
        warnings += [Violation(rule.name, item.item_id, detail) for rule in WARNINGS for detail in rule.check(subject)]
    violations += [Violation("duplicate_item_id", item_id, f"occurs {n} times") for item_id, n in seen.items() if n > 1]
    return Audit(seen.total(), negatives, dict(transforms), tuple(violations), tuple(warnings))
