"""What is reported about compute threads; the engine's own rule is tested in its environment."""

from __future__ import annotations

import pytest

from semblend.doctor.cpu_threads import RESERVED, CpuThreads


@pytest.mark.parametrize(
    ("threads", "launched", "text"),
    [
        (CpuThreads((3,), (3,), 1), True, "stock 3, with kvmend 3"),
        (
            CpuThreads((1,), (2,), 1),
            True,
            "stock 1, with kvmend 1 (kvmend serve sets VLLM_CPU_NUM_OF_RESERVED_CPU=1; vLLM alone takes 2)",
        ),
        (
            CpuThreads((3, 3), (2, 2), 2),
            False,
            "stock 3 + 3, with kvmend 2 + 2: vLLM reserves other cores where a connector is set; "
            "VLLM_CPU_NUM_OF_RESERVED_CPU=2, which kvmend serve sets, makes them equal",
        ),
        (CpuThreads((), (), 1), True, "stock and with kvmend as many as OMP_NUM_THREADS says, bound to no core"),
    ],
)
def test_the_fact_names_both_numbers(threads: CpuThreads, launched: bool, text: str) -> None:
    assert threads.describe(launched=launched) == text


def test_a_variable_is_set_only_where_the_numbers_differ() -> None:
    assert CpuThreads((3,), (3,), 1).environment == {}
    assert CpuThreads((3,), (2,), 1).environment == {RESERVED: "1"}
