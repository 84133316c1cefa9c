"""Gates: a result and engine summaries in, a verdict out. What was asked for and not measured has failed."""
