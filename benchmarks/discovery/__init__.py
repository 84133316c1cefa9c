"""Does the planner find everything there is to reuse, and nothing else? Checked against a brute-force oracle."""

import importlib.util
import sys
from pathlib import Path

if importlib.util.find_spec("semblend") is None:  # run from a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
