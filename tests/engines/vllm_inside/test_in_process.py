"""The engine core inside the server's own process: the connector must not load the planner's compiler too early."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.engine


def test_importing_the_connector_loads_no_compiler() -> None:
    """vLLM walks all loaded modules when it makes its worker, and fails on the compiler's objects."""
    program = (
        "import sys\n"
        "import semblend.integration.vllm.connector_v1, semblend.integration.vllm.worker\n"
        "sys.exit('llvmlite' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
