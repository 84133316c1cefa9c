"""The base install has no compiler: keys and both indexes give the same without it, only slower."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys, warnings
warnings.simplefilter("error")
sys.modules["numba"] = None
from sembase.compiled import HAS_COMPILER
from tests.unit.semgate.index import test_index_approximate as approximate
from tests.unit.semgate.index import test_index_blocks as blocks
from tests.unit.semgate.index import test_index_keys as keys
assert not HAS_COMPILER
for module in (keys, blocks, approximate):
    for name, test in vars(module).items():
        if name.startswith("test_a") and not hasattr(test, "hypothesis") and "large" not in name:
            test()
tokens = list(range(40))
assert keys.request_keys(keys.np.array(tokens, "uint32"), 5, 7).tolist() == keys.plain_keys(tokens, 5, 7, [0] * 8)
random = __import__("random").Random(3)
history = blocks.test_any_history_gives_what_dictionaries_give.hypothesis.inner_test
for _ in range(20):
    operations = []
    for _ in range(30):
        name = random.choice(["stored", "stored", "removed", "cleared", "replaced"])
        hashes = tuple(random.choices(range(40), k=random.randrange(6)))
        tokens = tuple(random.choices(range(2), k=blocks.BLOCK * len(hashes)))
        parent = random.choice([None, *range(40)])
        operations.append(blocks.Operation(name, random.randrange(3), hashes, parent, tokens))
    history(history=operations, count_copies=True, asked=random.choices(range(2), k=12))
print("the same")
"""


def test_the_indexes_work_without_a_compiler() -> None:
    root = Path(__file__).parents[4]
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=root, capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert "the same" in run.stdout
