"""The benchmarks are not installed: two tests here find them at the root of the checkout."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))
