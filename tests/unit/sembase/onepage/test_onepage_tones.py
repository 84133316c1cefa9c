"""Every tone a report names has a colour on its page and in its pictures: to the kit a tone is any string."""

from __future__ import annotations

import re
from typing import get_args

import pytest

import semantic_kv.report.tones
import sembench.report.tones
from sembase.onepage.page import style_of
from sembase.onepage.png import light_style

NAMED = {
    "sembench.report": get_args(sembench.report.tones.Tone),
    "semantic_kv.report": get_args(semantic_kv.report.tones.Tone),
}


@pytest.mark.parametrize("package", NAMED)
def test_every_tone_has_its_colours(package: str) -> None:
    style, light = style_of(package), light_style(style_of(package))
    for tone in NAMED[package]:
        assert f"svg .{tone} {{ color: var(--" in style
        assert f"svg .{tone} {{ color: #" in light
    defined = set(re.findall(r"(--[\w-]+):", style))
    assert set(re.findall(r"var\((--[\w-]+)\)", style)) <= defined
