"""The engine's own scheduler inside this process, with random weights. For programs run by the engine's interpreter."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[3]
ENVIRONMENT: Final = {
    "HF_HUB_OFFLINE": "1",
    "SEMBLEND_EMBEDDER": "none",
    "NUMBA_DISABLE_JIT": "1",
    "TORCH_COMPILE_DISABLE": "1",
    "OMP_NUM_THREADS": "1",
    "SGLANG_CPU_OMP_THREADS_BIND": "0-1",
}
FLAGS: Final = (
    *("--skip-tokenizer-init", "--load-format", "dummy", "--device", "cpu", "--attention-backend", "torch_native"),
    *("--sampling-backend", "pytorch", "--mem-fraction-static", "0.5", "--chunked-prefill-size", "4096"),
    *("--cuda-graph-backend-decode=disabled", "--cuda-graph-backend-prefill=disabled", "--page-size", "16"),
    *("--max-total-tokens", "4096", "--max-running-requests", "4", "--radix-cache-backend", "semblend"),
)


def import_engine() -> None:
    """Once per process, before anything else of the engine."""
    os.environ.update(ENVIRONMENT)
    sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "tests" / "engines" / "sglang" / "plugins")]
    import torch

    torch.set_num_threads(1)
    engine_module("plugins").load_plugins()
    import_module("semblend_sglang_testing.latent").register()
    engine_module("plugins.hook_registry").HookRegistry.apply_hooks()
    engine_module("managers.scheduler")


def engine_module(name: str) -> Any:
    return import_module(f"sglang.srt.{name}")


def write_model(folder: Path, model_type: str, architecture: str, settings: Mapping[str, Any], **more: Any) -> None:
    """The configuration of a model without weights."""
    from transformers import AutoConfig

    written = AutoConfig.for_model(model_type, **settings).to_dict()
    written |= {"architectures": [architecture], "model_type": model_type, **more}
    (folder / "config.json").write_text(json.dumps(written, default=str))


def start_scheduler(flags: Sequence[str], fill: Callable[[Any], None]) -> Any:
    """As the engine starts its scheduler's process, with the weights that ``fill`` gives the model."""
    scheduler, settings = engine_module("managers.scheduler"), engine_module("server_args")
    arguments = settings.prepare_server_args(list(flags))
    ranks = scheduler.SpawnRanks(
        world_rank=scheduler.spawn_world_rank(arguments, tp_rank=0, pp_rank=0), dp_rank=None, gpu_id=0
    )
    scheduler.publish(arguments, role="scheduler", ranks=ranks)
    scheduler.configure_scheduler_process(arguments, 0)
    load = scheduler.Scheduler.init_model_worker

    def loaded(own: Any) -> None:
        load(own)
        fill(own.tp_worker.model_runner.model)

    scheduler.Scheduler.init_model_worker = loaded
    return scheduler.Scheduler(arguments, settings.PortArgs.init_new(arguments))
