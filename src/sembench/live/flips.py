"""Did the answer of an item change between its arms? Two texts and whether each was right in, yes or no out."""

from __future__ import annotations

from sembench.live.scores import is_kept, score


def is_flipped(cold: str, warm: str, cold_right: bool | None, warm_right: bool | None, threshold: float) -> bool:
    """Right became wrong or wrong right; where neither was right, or nobody knows, the warm answer is not the cold one.

    Two right answers may differ in wording: that is no flip.
    """
    if cold_right is not None and warm_right is not None and (cold_right or warm_right):
        return cold_right != warm_right
    scores = score(warm, (cold,))
    return cold.strip() != warm.strip() if scores is None else not is_kept(scores, threshold)
