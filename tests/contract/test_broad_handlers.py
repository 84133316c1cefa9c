"""A broad ``except`` swallows defects: each one in ``src`` says on its line why it must be broad, or raises again."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src"
BROAD = {"Exception", "BaseException"}


def broad_handlers() -> list[tuple[str, str, bool]]:
    """Place, its line, and whether the handler ends by raising again."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ExceptHandler) and (node.type is None or ast.unparse(node.type) in BROAD):
                raises = isinstance(node.body[-1], ast.Raise)
                line = text.splitlines()[node.lineno - 1]
                found.append((f"{path.relative_to(SOURCE)}:{node.lineno}", line, raises))
    return found


def test_every_broad_handler_raises_again_or_states_its_reason() -> None:
    silent = [place for place, line, raises in broad_handlers() if not raises and "noqa: BLE001 - " not in line]
    assert silent == []


def test_the_adapters_have_one() -> None:
    swallowing = [place for place, _, raises in broad_handlers() if not raises and "semblend/integration" in place]
    # The thread of look-ups hands the error over, and the scheduler's thread raises it inside the border.
    hands_over = "semblend/integration/vllm/look_up_thread.py"
    assert [place.partition(":")[0] for place in swallowing] == ["semblend/integration/border.py", hands_over]
