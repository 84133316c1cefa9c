"""Verified runs become a plan or a refusal: composition, context risk, gates, predicted KL."""
