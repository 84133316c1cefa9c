"""Module paths of earlier releases: an import of one gives the present module, or one line that says what replaced it.

One finder at the head of Python's list, because a module inside a moved package must not be loaded a second time under
its former name. It looks at the name only. Installed by the packages that had other module names once.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import MappingProxyType, ModuleType
from typing import Final

from sembase.registry import load_module

MOVED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "semantic_kv.policies": "semantic_kv.policy",
        "semantic_kv.segmentation": "sembase.segment",
        "semantic_kv.workloads": "semantic_kv.workload",
        "semantic_kv.experiments": "semantic_kv.experiment",
        "semblend.core": "semblend.pipeline",
        "semblend.integration.sglang.launch_semblend_sglang": "semblend.integration.sglang.launch",
    }
)
GONE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "semblend.integration.vllm.model_runner_hook": "start vLLM with "
        "--worker-cls semblend.integration.vllm.worker.SemBlendWorker; the model runner is not patched (ADR 0005)",
        "semblend_core": "import semblend; one import root replaced three",
        "synapse_kv_connector": "import semblend.integration.vllm.connector_v1; one import root replaced three",
    }
)
_ROOTS: Final = ("semantic_kv.", "semblend", "synapse_kv_connector")


def install() -> None:
    """Safe to repeat."""
    if not any(isinstance(finder, FormerModules) for finder in sys.meta_path):
        sys.meta_path.insert(0, FormerModules())


class FormerModules(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(_ROOTS):
            return None
        if fullname in GONE:
            raise ModuleNotFoundError(f"No module named '{fullname}': {GONE[fullname]}", name=fullname)
        for former, present in MOVED.items():
            if fullname == former or fullname.startswith(f"{former}."):
                return ModuleSpec(fullname, _Present(present + fullname.removeprefix(former)), is_package=True)
        return None


class _Present(Loader):
    """Puts the present module under the former name; the import system returns what it finds there."""

    def __init__(self, present: str) -> None:
        self._present = present

    def exec_module(self, module: ModuleType) -> None:
        former = module.__name__
        warnings.warn(f"{former} is now {self._present}", DeprecationWarning, stacklevel=2)
        sys.modules[former] = load_module(self._present)
