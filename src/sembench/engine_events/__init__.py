"""Engine evidence: log lines or event streams in, a summary or one row per request out.

Only reuse that the engine reports is counted.
"""
