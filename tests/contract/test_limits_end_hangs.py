"""Limits of seconds in tests only end hangs: a machine that stalls for half a minute reaches none of them.

This test reads the source of the others for limits written as numbers. Where a limit is what is tested, it is a setting
of the code under test, or the clock is moved (``tests.clock``).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
SHORTEST_S = 120.0
# How a limit is given: the function's name, the place of the limit among its arguments.
LIMITED = {"wait_for": 1, "timeout": 0, "join": 0, "wait": 0, "result": 0}
NAMED = {"timeout", "patience_s", "timeout_s"}

ALLOWED = {
    "attacks/processes.py": "a process that does not end by itself is killed",
    "attacks/upgrade.py": "nothing more is expected; waits in steps",
    "attacks/without_key.py": "bytes that a server does not read stay in flight while it is probed",
    "engines/dynamo/deployment.py": "a process that does not end by itself is killed",
    "fakes/openai_server.py": "a process that does not end by itself is killed",
    "unit/sembase/http/test_http_client_calls.py": "the limit is what is tested; servers that are not there",
    "unit/sembench/test_bench_http_client.py": "the limit is what is tested; servers that are not there",
    "unit/semgate/fleet/test_health_checks.py": "the limit is what is tested",
}


def short_limits(path: Path) -> Iterator[int]:
    """Lines with a limit that a stalled machine may reach."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name == "AsyncClient" and not {"timeout", "transport"} & {each.arg for each in node.keywords}:
            yield node.lineno  # five seconds by default
        given = [each.value for each in node.keywords if each.arg in NAMED]
        given += node.args[LIMITED[name] : LIMITED[name] + 1] if name in LIMITED else []
        for value in given:
            if isinstance(value, ast.Constant) and isinstance(value.value, int | float) and value.value < SHORTEST_S:
                yield node.lineno


def test_no_limit_is_shorter_than_a_machine_may_stall() -> None:
    found = {str(path.relative_to(TESTS)): list(short_limits(path)) for path in TESTS.rglob("*.py")}
    short = {name: lines for name, lines in found.items() if lines}
    assert {name: lines for name, lines in short.items() if name not in ALLOWED} == {}
    assert sorted(set(ALLOWED) - set(short)) == [], "allowed without need"
