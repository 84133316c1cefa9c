"""No test that gates a landing compares a measured time with a constant: a busy machine would fail it.

Order and causality are tested with events and with ``tests.clock``; waits give up after a minute in ``tests.waiting``;
speed is measured in ``benchmarks``. This test reads the source of the others: a test that reads a clock is listed here
with the reason.
"""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]
CLOCKS = {"monotonic", "perf_counter", "process_time", "thread_time", "cpu_times", "getrusage", "SC_CLK_TCK"}

ALLOWED = {
    "waiting.py": "gives up after a minute",
    "fakes/openai_server.py": "writes its own clock into a stream",
    "integration/semgate/test_proxy_load.py": "prints figures, judges none",
    "load/test_bench_load_streams.py": "prints figures, judges none",
    "integration/semgate/test_router_padding.py": "a lower bound: an answer held back is never early",
    "unit/semgate/proxy/test_proxy_guard.py": "a lower bound: an answer held back is never early",
    "integration/semgate/test_proxy_passthrough.py": "compares two readings of the same clock",
    "unit/semgate/index/test_index_moving.py": "compares the longest call with the sum of all, in processor time",
    "unit/sembench/test_bench_engine_events.py": "processor time, a thousand times below the limit unless quadratic",
    "unit/sembase/test_segment_rules.py": "processor time, a thousand times below the limit unless quadratic",
    "unit/sembench/test_bench_load_run.py": "stamps a made-up reply",
    "unit/semblend/pipeline/test_planner_attacks.py": "runs threads for a while, judges no time",
    "engines/dynamo/drive_router.py": "records a figure, judges none",
    "engines/gpusim/drive.py": "records a figure, judges none",
    "engines/gpusim/running.py": "records a figure, judges none",
    "engines/model_matrix/one_model.py": "records a figure, judges none",
    "engines/model_matrix/run.py": "gives up after some minutes",
    "engines/sglang/run_models.py": "records a figure, judges none; gives up after some minutes",
    "engines/vllm_inside/repair_schedules.py": "says how long the rest will take",
    "engines/vllm/connector/client.py": "records a figure, judges none",
    "engines/dynamo/deployment.py": "gives up after some minutes, or as soon as the process has died",
    "unit/sembase/http/test_http_client_calls.py": "compares readings of the same clock",
    "unit/sembase/test_progress.py": "moves the clock itself",
}


def _reads_a_clock(path: Path) -> bool:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    named = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    imported = {
        alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "time"
        for alias in node.names
    }  # fmt: skip
    words = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return bool((named | imported | words) & CLOCKS)


def test_only_listed_tests_read_a_clock() -> None:
    found = {str(path.relative_to(TESTS)) for path in TESTS.rglob("*.py") if _reads_a_clock(path)}
    found.discard(str(Path(__file__).relative_to(TESTS)))
    assert sorted(found) == sorted(ALLOWED)
