"""Stage 4: a candidate donor and a recipient become verified token-identical runs. Reuse is decided elsewhere."""

from semblend.align.pair import Alignment, align_pair
from semblend.align.runs import equal_runs

__all__ = ["Alignment", "align_pair", "equal_runs"]
