"""``semblend.gpu-evidence.v1``: what was proven on one GPU with one attention backend and one model. Reader and writer.

The digest is a SHA-256 over the canonical JSON of everything but digest and signature: it shows that the file was not
changed since. A signature (HMAC-SHA256 of the digest, by a key the writer chose) shows that a holder of the key wrote
it. Neither shows that the run took place: that is a matter of trust in the sender.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta, field

from sembase.errors import ConfigurationError, SemBlendError
from sembase.records import Amount, Name, Record, as_plain, record_of

SCHEMA: Final = "semblend.gpu-evidence.v1"
# A file is evidence for its kind only if each of these steps passed; the others may be skipped with a reason.
REQUIRED_STEPS: Final = ("machine", "blend", "gaps", "faults", "neighbours", "ttft")
_SIGNATURE_KIND: Final = "hmac-sha256"
_MIN_KEY_BYTES: Final = 16


class EvidenceError(SemBlendError, ValueError):
    """The file is not evidence of this schema, or was changed."""


class StepStatus(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Step(Record, frozen=True):
    """``detail`` says why a step failed or was skipped. ``figures`` are numbers and short texts, by name."""

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
        for name in REQUIRED_STEPS:
            step = self.step(name)
            if step is None:
                found.append(f"step {name} is missing")
            elif step.status is StepStatus.SKIPPED:
                found.append(f"step {name} was skipped: {step.detail}")
        return tuple(found)


def read_key(file: Path) -> bytes:
    """The key in a file, without white space around it."""
    key = file.read_bytes().strip()
    if len(key) < _MIN_KEY_BYTES:
        raise ConfigurationError(f"{file}: a key has at least {_MIN_KEY_BYTES} bytes")
    return key


def encode_evidence(evidence: GpuEvidence, key: bytes | None = None) -> str:
    """The file's text; signed if there is a key."""
    record: dict[str, Any] = as_plain(evidence)
    digest = _digest(record)
    signature = None if key is None else {"kind": _SIGNATURE_KIND, "key_id": _key_id(key), "value": _sign(digest, key)}
    return json.dumps({**record, "digest": digest, "signature": signature}, indent=2, sort_keys=True) + "\n"


def decode_evidence(text: str, key: bytes | None = None) -> GpuEvidence:
    """Raises ``EvidenceError`` if a field is missing or wrong, the digest differs, or ``key`` did not sign it."""
    try:
        record = json.loads(text)
    except ValueError as error:
        raise EvidenceError(f"not JSON: {error}") from None
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        raise EvidenceError(f"not a record of {SCHEMA}")
    digest, signature = record.pop("digest", None), record.pop("signature", None)
    if not isinstance(digest, str) or not hmac.compare_digest(digest, _digest(record)):
        raise EvidenceError("the digest does not fit the content: the file was changed after it was written")
    if key is not None:
        if not isinstance(signature, dict) or signature.get("kind") != _SIGNATURE_KIND:
            raise EvidenceError("the file is not signed")
        if not hmac.compare_digest(str(signature.get("value")), _sign(digest, key)):
            raise EvidenceError("the file was not signed with this key")
    try:
        return record_of(GpuEvidence, record)
    except ValueError as error:
        raise EvidenceError(str(error)) from None


def decode_step(record: Any) -> Step:
    """One step, as evidence and as the files of an interrupted run hold it."""
    try:
        return record_of(Step, record)
    except ValueError as error:
        raise EvidenceError(f"a step: {error}") from None


def _digest(record: Mapping[str, Any]) -> str:
    canonical = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _sign(digest: str, key: bytes) -> str:
    return hmac.new(key, digest.encode(), hashlib.sha256).hexdigest()


def _key_id(key: bytes) -> str:
    """Tells keys apart without revealing them."""
    return hashlib.sha256(b"semblend.gpu-evidence key id:" + key).hexdigest()[:16]
