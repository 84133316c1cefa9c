"""A request's prompt as labelled pieces and keyed digests, so that it can be recorded and compared without its text."""
