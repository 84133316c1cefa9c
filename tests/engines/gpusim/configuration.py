"""What is simulated: one engine configuration, as the tests choose it and as the engine's processes read it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SUBSTITUTE = Path(__file__).parent / "substitute"
_VARIABLE = "GPUSIM_BACKEND"


class Backend(Enum):
    """Attention backends, with the compute capability of a GPU on which the engine chooses them."""

    FLASH_ATTENTION_2 = "fa2"
    FLASH_ATTENTION_3 = "fa3"
    FLASHINFER = "flashinfer"
    TRITON = "triton"

    @property
    def engine_name(self) -> str:
        names = {Backend.FLASHINFER: "FLASHINFER", Backend.TRITON: "TRITON_ATTN"}
        return names.get(self, "FLASH_ATTN")

    @property
    def capability(self) -> tuple[int, int]:
        return (9, 0) if self in (Backend.FLASH_ATTENTION_3, Backend.TRITON) else (8, 9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """``runner`` is the generation of the engine's model runner, 1 or 2."""

    backend: Backend
    runner: int = 2
    is_async: bool = True
    block_tokens: int = 16
    ranks: int = 1
    is_compiled: bool = False

    @property
    def name(self) -> str:
        scheduling = "async" if self.is_async else "sync"
        compiled = " compiled" if self.is_compiled else ""
        return f"V{self.runner} {self.backend.value} {scheduling} block {self.block_tokens} TP {self.ranks}{compiled}"

    def environment(self, site: Path) -> dict[str, str]:
        """For the engine's process. ``site`` is an empty folder that gets the plug-in's entry point."""
        write_entry_point(site)
        substitute = (str(SUBSTITUTE),) if self.backend is Backend.FLASHINFER else ()
        return {
            _VARIABLE: self.backend.value,
            "PYTHONPATH": os.pathsep.join((str(site), str(ROOT), str(ROOT / "src"), *substitute)),
            "VLLM_USE_V2_MODEL_RUNNER": str(self.runner - 1),
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE": str(1 << 20),
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_CPU_CI_ENV": "1",
            "VLLM_LOGGING_LEVEL": "WARNING",
            "TORCH_COMPILE_DISABLE": str(int(not self.is_compiled)),
            "TRITON_INTERPRET": "1",
            "OMP_NUM_THREADS": "1",
            "SEMBLEND_EMBEDDER": "none",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
        }


def write_entry_point(site: Path) -> None:
    """The metadata of an installed distribution, by which the engine finds the plug-in."""
    information = site / "gpusim-1.dist-info"
    information.mkdir(parents=True, exist_ok=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: gpusim\nVersion: 1\n")
    (information / "RECORD").write_text("")
    (information / "entry_points.txt").write_text(
        "[vllm.platform_plugins]\ngpusim = tests.engines.gpusim.plugin:register\n"
    )


def simulated_backend() -> Backend:
    """Inside the engine: the backend whose kernels are simulated."""
    return Backend(os.environ[_VARIABLE])
