"""Prometheus' text format read by the parser of ``prometheus_client``, its only importer here; loaded on demand."""

from __future__ import annotations

import math
from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families


def samples(text: str) -> Iterator[tuple[str, str, dict[str, str], float]]:
    """(kind, name, labels, value); a text that is none raises ``ValueError``."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if not math.isnan(sample.value):
                yield family.type, sample.name, sample.labels, sample.value
