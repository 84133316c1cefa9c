"""Every tone a report names has a colour on its page and in its pictures: to the kit a tone is any string."""

from __future__ import annotations

import re
from typing import get_args

import pytest

import semantic_kv.report.tones
import sembench.report.tones
from sembase.onepage.page import style_of

NAMED = {
    "sembench.report": (get_args(sembench.report.tones.Tone), sembench.report.tones.COLOURS),
    "semantic_kv.report": (get_args(semantic_kv.report.tones.Tone), semantic_kv.report.tones.COLOURS),
}


@pytest.mark.parametrize("package", NAMED)
def test_every_tone_has_its_colours(package: str) -> None:
    tones, colours = NAMED[package]
    style = style_of(package)
    assert set(tones) - {"muted", "ink"} == set(colours)
    for tone in tones:
        assert f"svg .{tone} {{ color: var(--" in style
    defined = set(re.findall(r"(--[\w-]+):", style))
    assert set(re.findall(r"var\((--[\w-]+)\)", style)) <= defined
