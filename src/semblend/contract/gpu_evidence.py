"""``semblend.gpu-evidence.v1``: what was proven on one GPU with one attention backend and one model. Reader and writer.

The digest is a SHA-256 over the canonical JSON of everything else: it shows that the file was not changed since. It
does not show that the run took place: that is a matter of trust in the sender.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

from msgspec import Meta, field

from sembase.errors import SemBlendError
from sembase.records import Amount, Name, Record, as_plain, read_json, record_of

SCHEMA: Final = "semblend.gpu-evidence.v1"
# A file is evidence for its kind only if each of these steps passed.
REQUIRED_STEPS: Final = ("machine", "blend", "gaps", "faults", "neighbours", "ttft")


class EvidenceError(SemBlendError, ValueError):
    """The file is not evidence of this schema, or was changed."""


class StepStatus(StrEnum):
    PASSED = "passed"
    FAILED = "failed"


class Step(Record, frozen=True):
    """``detail`` says why a step failed. ``figures`` are numbers and short texts, by name."""

    name: Name
    status: StepStatus
    seconds: Amount
    detail: str = ""
    figures: dict[str, Any] = field(default_factory=dict)


class GpuEvidence(Record, frozen=True, kw_only=True, tag=SCHEMA, tag_field="schema"):
    """``device_type`` is the engine's word (``cuda``, ``rocm``, ``cpu``); with ``cpu`` nothing is shown about a GPU."""

    created: Name
    device: Name
    device_type: Name
    backend: Name
    model: Name
    architecture: Name
    engine: Name
    engine_version: Name
    semblend_version: Name
    configuration: dict[str, Any]
    machine: dict[str, Any]
    steps: Annotated[tuple[Step, ...], Meta(min_length=1)]

    def step(self, name: str) -> Step | None:
        return next((each for each in self.steps if each.name == name), None)

    @property
    def obstacles(self) -> tuple[str, ...]:
        """Why this does not count as evidence for its kind; empty if it does."""
        found = [] if self.device_type != "cpu" else ["it was made on a CPU"]
        found += [f"step {each.name} failed: {each.detail}" for each in self.steps if each.status is StepStatus.FAILED]
        found += [f"step {name} is missing" for name in REQUIRED_STEPS if self.step(name) is None]
        return tuple(found)


def encode_evidence(evidence: GpuEvidence) -> str:
    record: dict[str, Any] = as_plain(evidence)
    return json.dumps({**record, "digest": _digest(record)}, indent=2, sort_keys=True) + "\n"


def decode_evidence(text: str) -> GpuEvidence:
    """Raises ``EvidenceError`` if a field is missing or wrong, or the digest differs."""
    try:
        record = read_json(text)
        if not isinstance(record, dict) or record.get("schema") != SCHEMA:
            raise EvidenceError(f"not a record of {SCHEMA}")
        if record.pop("digest", None) != _digest(record):
            raise EvidenceError("the digest does not fit the content: the file was changed after it was written")
        return record_of(GpuEvidence, record)
    except ValueError as error:
        raise EvidenceError(str(error)) from None


def _digest(record: Mapping[str, Any]) -> str:
    canonical = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
