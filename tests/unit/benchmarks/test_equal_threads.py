"""A benchmark starts no two engines that compute on different numbers of threads."""

from __future__ import annotations

import ast
from argparse import Namespace
from pathlib import Path

import pytest
from benchmarks import equal_threads
from benchmarks.agent_breaks import __main__ as agent_breaks
from benchmarks.equal_threads import EqualThreads, ThreadsDifferError
from benchmarks.vllm import run as vllm_run
from scripts.engines import server
from scripts.engines.server import ServerSpec
from scripts.engines.specs import EngineOptions, semblend_flags, sglang_spec, vllm_spec
from scripts.models.known import SMOLLM2

BENCHMARKS = Path(equal_threads.__file__).parent
STOCK = EngineOptions(cores="0-1")
OURS = EngineOptions(cores="0-1", extra=semblend_flags())


def test_servers_of_equal_threads_are_started() -> None:
    run = EqualThreads()
    run.check(vllm_spec(STOCK))
    run.check(vllm_spec(OURS))
    run.check(ServerSpec("router", ("r",)))
    run.check(vllm_spec(EngineOptions(cores="2,3")))


@pytest.mark.parametrize(
    ("other", "shown"),
    [
        (EngineOptions(cores="0", extra=OURS.extra), "1 bound"),
        (EngineOptions(threads=2), "2 bound to no core"),
        (EngineOptions(cores="0-1", environment={"VLLM_CPU_OMP_THREADS_BIND": "0"}), "1 bound"),
        (EngineOptions(), "the engine's own choice"),
    ],
)
def test_servers_of_unequal_threads_are_refused(other: EngineOptions, shown: str) -> None:
    run = EqualThreads()
    run.check(vllm_spec(STOCK))
    with pytest.raises(ThreadsDifferError, match="compute threads: 2 bound") as refused:
        run.check(vllm_spec(other))
    assert shown in str(refused.value)


def test_sglang_is_held_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    monkeypatch.setattr(server, "launch_all", lambda specs: started.extend(s.name for s in specs))
    monkeypatch.setattr(equal_threads, "_of_this_process", EqualThreads())
    one, two = EngineOptions(cores="0"), EngineOptions(cores="0-1")
    equal_threads.launch_all([sglang_spec(one), sglang_spec(one, semblend={})])
    assert started == ["sglang", "sglang"]
    with pytest.raises(ThreadsDifferError):
        equal_threads.launch_all([sglang_spec(one), sglang_spec(two, semblend={})])
    assert started == ["sglang", "sglang"], "neither of the pair was started"


def test_where_no_threads_are_named_a_connector_changes_nothing() -> None:
    """vLLM would reserve one more core for it: see semblend.doctor.cpu_threads."""
    stock, ours = (vllm_spec(EngineOptions(extra=extra)).environment for extra in ((), OURS.extra))
    assert stock == ours
    assert stock["VLLM_CPU_NUM_OF_RESERVED_CPU"] == "1"
    assert "VLLM_CPU_NUM_OF_RESERVED_CPU" not in vllm_spec(STOCK).environment


def test_every_benchmark_starts_its_engines_here() -> None:
    starting = [
        path
        for path in BENCHMARKS.rglob("*.py")
        if {"vllm_spec", "sglang_spec"} & _imported(path, "scripts.engines.specs")
    ]
    assert len(starting) > 10
    elsewhere = [path for path in starting if {"launch", "launch_all"} & _imported(path, "scripts.engines.server")]
    assert elsewhere == [], "import launch from benchmarks.equal_threads"


def _imported(path: Path, module: str) -> set[str]:
    found = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {
        each.name for node in found if isinstance(node, ast.ImportFrom) and node.module == module for each in node.names
    }


def test_a_run_is_not_continued_on_other_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """``BENCH_CORES`` may differ between a run and its continuation: the arms would, too."""
    chosen = Namespace(seed=0, quality=True, stock=False, option=[], recompute_everything=False)
    names = ("model", "turns", "tokens", "min_think_s", "max_think_s", "think", "gates", "cold", "dataset", "seed")
    sessions = Namespace(**dict.fromkeys(names))
    for module in (vllm_run, agent_breaks):
        monkeypatch.setattr(module, "CORES", "0-1")
    run = vllm_run.Run(SMOLLM2, "default", chosen, "texts")
    before = run.fingerprint, agent_breaks._settings(sessions)
    for module in (vllm_run, agent_breaks):
        monkeypatch.setattr(module, "CORES", "0")
    assert run.fingerprint != before[0]
    assert agent_breaks._settings(sessions) != before[1]
