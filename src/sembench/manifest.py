"""The manifest: one workload item per JSON line, written with sorted keys so that equal workloads are equal bytes.

The builder writes it; every runner and the audit read it. A malformed line is rejected with its file and line number.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from sembase.errors import ConfigurationError, ContractError
from sembase.files import replace_atomically

MANIFEST_VERSION: Final = "sembench.manifest.v1"
_ITEM_REQUIRED: Final = ("item_id", "dataset", "source_id", "transform", "recipient_prompt")
_ITEM_KEYS: Final = frozenset(
    {*_ITEM_REQUIRED, "answers", "benchmark_version", "donor_prompts", "input", "metadata", "negative_control"}
)
_DONOR_REQUIRED: Final = ("donor_id", "text")
_DONOR_KEYS: Final = frozenset({*_DONOR_REQUIRED, "label", "metadata"})


class ManifestFormatError(ContractError):
    """A line of a manifest does not follow the contract; the message starts with ``file:line``."""


@dataclass(frozen=True, slots=True)
class DonorPrompt:
    """An earlier prompt the recipient may share content with."""

    donor_id: str
    text: str
    label: str = "donor"
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadItem:
    """One recipient, the donors that precede it, and the expected answers."""

    item_id: str
    dataset: str
    source_id: str
    transform: str
    recipient_prompt: str
    donor_prompts: tuple[DonorPrompt, ...] = ()
    input: str = ""
    answers: tuple[str, ...] = ()
    negative_control: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_stream(self) -> bool:
        """The donor pool is every earlier recipient of the same stream, not ``donor_prompts``."""
        return self.metadata.get("stream") is True

    @property
    def stream_id(self) -> str:
        return str(self.metadata.get("stream_id", self.dataset))

    @property
    def tenant(self) -> str | None:
        return tenant_of(self.metadata)

    def tenant_of_donor(self, donor: DonorPrompt) -> str | None:
        """The donor's own tenant, which may be null; a donor without one belongs to the recipient's."""
        named = "tenant" in donor.metadata or "tenant_id" in donor.metadata
        return tenant_of(donor.metadata) if named else self.tenant


def tenant_of(metadata: Mapping[str, Any]) -> str | None:
    """``tenant``, or ``tenant_id`` as older manifests spell it; None is a tenant of its own."""
    value = metadata.get("tenant", metadata.get("tenant_id"))
    return None if value is None else str(value)


def derive_id(*parts: str) -> str:
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:16]


def item_id_for(dataset: str, source_id: str, transform: str) -> str:
    return derive_id(dataset, source_id, transform)


def donor_id_for(item_id: str) -> str:
    return derive_id(item_id, "donor")


def segment_donor_id_for(item_id: str, index: int) -> str:
    return derive_id(item_id, "segment", str(index))


def encode_item(item: WorkloadItem) -> str:
    record = {**asdict(item), "benchmark_version": MANIFEST_VERSION}
    return json.dumps(record, ensure_ascii=False, sort_keys=True, allow_nan=False)


def write_manifest(path: Path, items: Iterable[WorkloadItem]) -> int:
    """Write all items or nothing; returns how many."""
    count = 0
    with replace_atomically(path) as stream:
        for item in items:
            try:
                stream.write(encode_item(item).encode() + b"\n")
            except UnicodeEncodeError as error:
                raise ContractError(f"item {item.item_id} ({item.dataset}/{item.source_id}): {error}") from None
            count += 1
    return count


def read_manifest(path: Path, max_items: int | None = None) -> list[WorkloadItem]:
    """The first ``max_items`` items of the file, or all."""
    items: list[WorkloadItem] = []
    for item in iterate_manifest(path):
        if max_items is not None and len(items) >= max_items:
            break
        items.append(item)
    return items


def read_run_items(path: Path, max_items: int | None = None) -> list[WorkloadItem]:
    """The items of a run: at least one, and no item_id twice."""
    items = read_manifest(path, max_items)
    if not items:
        raise ConfigurationError(f"{path} holds no items")
    repeated = [item_id for item_id, count in Counter(item.item_id for item in items).items() if count > 1]
    if repeated:
        raise ConfigurationError(f"{path}: item_id {repeated[0]} occurs twice; see kvmend bench audit-manifest")
    return items


def iterate_manifest(path: Path) -> Iterator[WorkloadItem]:
    # newline="\n": prompts may contain U+2028 or a lone CR, which universal newlines would treat as line ends.
    with path.open(encoding="utf-8", newline="\n") as stream:
        for number, line in enumerate(stream, start=1):
            if line.strip():
                yield decode_item(line, f"{path}:{number}")


def manifest_digest(path: Path) -> str:
    """The sha256 of the file's bytes: what ``sha256sum`` prints."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def decode_item(line: str, where: str) -> WorkloadItem:
    try:
        record = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ManifestFormatError(f"{where}: not JSON: {error}") from None
    _require_keys(record, _ITEM_REQUIRED, _ITEM_KEYS, where)
    version = record.get("benchmark_version", MANIFEST_VERSION)
    if version != MANIFEST_VERSION:
        raise ManifestFormatError(f"{where}: benchmark_version {version!r} is not {MANIFEST_VERSION!r}")
    answers = _typed(record, "answers", list, [], where)
    if not all(isinstance(answer, str) for answer in answers):
        raise ManifestFormatError(f"{where}: 'answers' must be a list of strings")
    donors = _typed(record, "donor_prompts", list, [], where)
    return WorkloadItem(
        **{key: _typed(record, key, str, None, where) for key in _ITEM_REQUIRED},
        donor_prompts=tuple(_decode_donor(donor, f"{where}: donor_prompts[{i}]") for i, donor in enumerate(donors)),
        input=_typed(record, "input", str, "", where),
        answers=tuple(answers),
        negative_control=_typed(record, "negative_control", bool, False, where),
        metadata=_typed(record, "metadata", dict, {}, where),
    )


def _decode_donor(record: object, where: str) -> DonorPrompt:
    donor = _require_keys(record, _DONOR_REQUIRED, _DONOR_KEYS, where)
    return DonorPrompt(
        donor_id=_typed(donor, "donor_id", str, None, where),
        text=_typed(donor, "text", str, None, where),
        label=_typed(donor, "label", str, "donor", where),
        metadata=_typed(donor, "metadata", dict, {}, where),
    )


def _require_keys(record: object, required: tuple[str, ...], known: frozenset[str], where: str) -> dict[str, Any]:
    if not isinstance(record, dict):
        raise ManifestFormatError(f"{where}: not a JSON object")
    if missing := [key for key in required if key not in record]:
        raise ManifestFormatError(f"{where}: missing {', '.join(missing)}")
    if unknown := sorted(set(record) - known):
        raise ManifestFormatError(f"{where}: unknown keys {', '.join(unknown)}; known: {', '.join(sorted(known))}")
    return record


def _typed(record: Mapping[str, Any], key: str, kind: type, default: Any, where: str) -> Any:
    value = record.get(key, default)
    if not isinstance(value, kind):
        raise ManifestFormatError(f"{where}: '{key}' must be {kind.__name__}, not {type(value).__name__}")
    return value
