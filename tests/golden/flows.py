"""The five flows by name. Each gives the texts of its golden files, or says why it cannot run in this interpreter."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from tests.golden import estimate, live_bench, route, serve, simulate

Flow = Callable[[Path], dict[str, str] | str]

FLOWS: Final[dict[str, Flow]] = {
    "planned": lambda _: serve.planned(),
    "served_by_default": lambda _: serve.served_by_default(),
    **{name: partial(serve.served, name) for name in ("vllm_look_up", "sglang_tracker", "dynamo_provider")},
    "placed": lambda _: route.placed(),
    "recorded": route.recorded,
    "benched": live_bench.benched,
    "estimated": estimate.estimated,
    "estimated_shared": estimate.estimated_shared,
    "decided": lambda _: simulate.decided(),
    "studied": simulate.studied,
}
ENGINE_FLOWS: Final[dict[str, Flow]] = {
    name: partial(serve.served, name) for name in ("vllm_scheduler", "vllm_server", "sglang_server")
}
