"""What a request asks, in pieces and as keyed digests: for whoever records and for whoever compares, without text."""
