"""Whether evidence of ``kvmend doctor --gpu`` covers what runs here: a kind in, a date or the reason why not out.

Accepted files ship with the package; a deployment may name one of its own. A file
counts for its kind only: GPU, attention backend, architecture, engine and engine version. Called once, at start-up.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sembase.settings import setting
from sembase.values import flag, optional, path
from semblend import __version__
from semblend.contract.gpu_evidence import EvidenceError, GpuEvidence, decode_evidence
from semblend.integration.fidelity_options import FidelityOptions

ACCEPTED: Final = Path(__file__).parent / "accepted_evidence"


@dataclass(frozen=True, slots=True)
class GpuOptions(FidelityOptions):
    """What a deployment may choose about GPUs, the same keys for vLLM and SGLang."""

    experimental_gpu: bool = setting(
        False,
        flag,
        "Serve on GPUs. The log says `experimental` until evidence for this GPU, attention backend, architecture and "
        "engine version is accepted: see [GPU](gpu.md).",
    )
    gpu_evidence: Path | None = setting(
        None,
        optional(path),
        "File of evidence that `kvmend doctor --gpu` wrote for this kind of server. `null` uses only "
        "the files that ship with the package.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What runs here, in the words of the engine. Texts are compared as they are."""

    device: str
    backend: str
    architecture: str
    engine: str
    engine_version: str

    def __str__(self) -> str:
        return f"{self.device}, {self.backend}, {self.architecture}, {self.engine} {self.engine_version}"


def architecture_of(hf_config: Any) -> str:
    """Class names in a configuration of Hugging Face, as evidence records them."""
    return ", ".join(getattr(hf_config, "architectures", None) or ())


@dataclass(frozen=True, slots=True)
class Acceptance:
    """``date`` of the evidence that counts, or the ``reason`` why none does."""

    date: str = ""
    reason: str = ""


def log_acceptance(log: logging.Logger, kind: Kind, options: GpuOptions, experimental: str) -> None:
    """The line that a server on a GPU logs at its start. ``experimental``: what no test of ours has shown."""
    found = find_acceptance(kind, options.gpu_evidence)
    if found.date:
        log.info("SemBlend is verified by evidence of %s: %s", found.date, kind)
    else:
        log.warning("SemBlend is experimental here: %s %s", experimental, found.reason)


def find_acceptance(kind: Kind, own: Path | None, shipped: Path = ACCEPTED) -> Acceptance:
    """The deployment's own file is judged first; if it does not count, its reason is the one reported."""
    reason = ""
    if own is not None:
        judged = _judge_own(kind, own)
        if judged.date:
            return judged
        reason = judged.reason
    for text in _texts(shipped):
        try:
            evidence = decode_evidence(text)
        except EvidenceError:
            continue  # a changed file of the package does not count
        if not _difference(kind, evidence) and not evidence.obstacles:
            return Acceptance(date=_day(evidence))
    return Acceptance(reason=reason or f"No evidence has been accepted for {kind}.")


def _judge_own(kind: Kind, own: Path) -> Acceptance:
    def refused(why: str) -> Acceptance:
        return Acceptance(reason=f"The evidence in {own} does not count: {why}.")

    try:
        evidence = decode_evidence(own.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, EvidenceError) as error:
        return refused(str(error))
    if why := _difference(kind, evidence) or "; ".join(evidence.obstacles):
        return refused(why)
    return Acceptance(date=_day(evidence))


def _difference(kind: Kind, evidence: GpuEvidence) -> str:
    """Why evidence says nothing about this kind; empty if it does."""
    for title, here, there in (
        ("another GPU", kind.device, evidence.device),
        ("another attention backend", kind.backend, evidence.backend),
        ("another architecture", kind.architecture, evidence.architecture),
        ("another engine", kind.engine, evidence.engine),
        ("another engine version", _public(kind.engine_version), _public(evidence.engine_version)),
        ("another SemBlend version", _release(__version__), _release(evidence.semblend_version)),
    ):
        if here != there:
            return f"it was made with {title}, {there} instead of {here}"
    return ""


def _public(version: str) -> str:
    """``0.32.0+cu129`` -> ``0.32.0``: builds of one release."""
    return version.partition("+")[0]


def _release(version: str) -> str:
    """``0.3.1`` -> ``0.3``: patch releases change no code path of a GPU without new evidence."""
    return ".".join(version.split(".")[:2])


def _day(evidence: GpuEvidence) -> str:
    return evidence.created.partition("T")[0]


def _texts(folder: Path) -> Iterator[str]:
    for file in sorted(folder.glob("*.json")):
        yield file.read_text(encoding="utf-8")
