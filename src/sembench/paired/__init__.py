"""The ``paired`` block of a result: cold and warm arm of the same requests. Rows in, figures out, nothing else read."""

from sembench.paired.summary import summarize_pairs

__all__ = ["summarize_pairs"]
