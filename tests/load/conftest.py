"""The load tests of the router use its benchmarks' client and replicas, found at the root of the checkout."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
