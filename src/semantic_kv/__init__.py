"""A simulator of prefix and KV caches under memory pressure. Its TTFT is modelled, never measured.

The stable imports, whose modules are loaded on first use:

- ``from semantic_kv.simulate import simulate``: one trace through one cache.
- ``from semantic_kv import make_workload, sample_trace``: generated workloads, samples of a trace.
- ``from semantic_kv import ExperimentConfig, PolicyChoice, RunOptions, load_config, run_study, verdict_of``: studies.
- ``from semantic_kv import ADMISSION, EVICTION, clairvoyant, infinite``: the registries of policies, and the bounds.
- ``semantic_kv.latency``, ``semantic_kv.calibrate``, ``semantic_kv.collect``, ``semantic_kv.api``: as they say.
- ``from sembase.trace import load_trace``: traces are in ``sembase.trace``, prompts to blocks in ``sembase.segment``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sembase import former_modules
from sembase.registry import load_target

if TYPE_CHECKING:
    from semantic_kv.bound import clairvoyant, infinite
    from semantic_kv.experiment.config import ExperimentConfig, PolicyChoice
    from semantic_kv.experiment.config_file import load_config
    from semantic_kv.experiment.run import RunOptions, run_study
    from semantic_kv.experiment.verdict import verdict_of
    from semantic_kv.policy.registry import ADMISSION, EVICTION
    from semantic_kv.sampling import sample_trace
    from semantic_kv.workload import make_workload

__all__ = [
    "ADMISSION",
    "EVICTION",
    "ExperimentConfig",
    "PolicyChoice",
    "RunOptions",
    "clairvoyant",
    "infinite",
    "load_config",
    "make_workload",
    "run_study",
    "sample_trace",
    "verdict_of",
]
_MODULES: Final = {
    "ADMISSION": "policy.registry",
    "EVICTION": "policy.registry",
    "ExperimentConfig": "experiment.config",
    "PolicyChoice": "experiment.config",
    "RunOptions": "experiment.run",
    "clairvoyant": "bound",
    "infinite": "bound",
    "load_config": "experiment.config_file",
    "make_workload": "workload",
    "run_study": "experiment.run",
    "sample_trace": "sampling",
    "verdict_of": "experiment.verdict",
}


former_modules.install()


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'semantic_kv' has no attribute '{name}'")
    return load_target(f"semantic_kv.{_MODULES[name]}:{name}")
