"""Charts -> PNGs for slides: the page's own SVG under its title and legend, in light colours, rasterised by resvg."""

from __future__ import annotations

import logging
import re
import textwrap
from collections.abc import Callable, Iterable
from typing import Final

from sembase.errors import MissingDependencyError
from sembase.onepage.chart import Chart, Series, named
from sembase.onepage.frame import frame_of
from sembase.onepage.markup import Safe, tag
from sembase.onepage.svg import svg, swatch
from sembase.registry import load_target

ZOOM: Final = 3.0
_LOG: Final = logging.getLogger(__name__)
_MARGIN: Final = 16
_FONTS: Final = "Liberation Sans, Arial, Helvetica, Segoe UI, DejaVu Sans, Noto Sans, Roboto, Ubuntu, sans-serif"
_PROBE: Final = f'width="9" height="9" font-family="{_FONTS}"'
_LINE: Final = 17  # pixels from line to line of small text
_LETTER: Final = 7.0  # mean width of a letter of small text, generous
_TITLE_LETTER: Final = 10.5
_ENTRY: Final = 38.0  # the swatch of a legend's entry, and the space to the next one
_LIGHT: Final = re.compile(r":root\s*\{(.*?)\}", re.DOTALL)
_VARIABLE: Final = re.compile(r"--([\w-]+):\s*([^;]+);")
_MEDIA: Final = re.compile(r"@[^{]+\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", re.DOTALL)
_RULE: Final = re.compile(r"([^{}]+)\{([^{}]*)\}", re.DOTALL)
# Elements and classes of the drawing; the rest of a page's style sheet means nothing in a picture.
_DRAWN: Final = re.compile(r"^(svg |\.(grid|row|rule|curve|dots|whiskers|bars|track|fill|\w+ \.fill)\b)")

Rasterise = Callable[..., bytes]


def rasteriser(extra: str, purpose: str) -> Rasterise:
    """resvg's entry point, or an error that names the extra to install."""
    try:
        found: Rasterise = load_target("resvg_py:svg_to_bytes")
    except ModuleNotFoundError:
        raise MissingDependencyError("resvg-py", extra, purpose) from None
    word, nothing = (f'<svg xmlns="http://www.w3.org/2000/svg" {_PROBE}><text y="9">{t}</text></svg>' for t in "w ")
    if found(svg_string=word) == found(svg_string=nothing):
        _LOG.warning("pictures have no words: none of these fonts is installed: %s", _FONTS)
    return found


def chart_png(chart: Chart, style: str, rasterise: Rasterise) -> bytes:
    """``style`` is the page's style sheet (``page.style_of``)."""
    frame = frame_of(chart, "wide")
    legend, height = _legend(named(chart), frame.width)
    drawing = tag("svg", svg(chart, frame, "chart"), y=height, width=frame.width, height=frame.height)
    return picture_png(
        chart.title, chart.message, (*legend, drawing), frame.width, height + frame.height, style, rasterise
    )


def picture_png(
    title: str,
    message: str,
    content: Iterable[Safe],
    width: float,
    height: float,
    style: str,
    rasterise: Rasterise,
) -> bytes:
    """``content`` is drawn below title and message, from (0, 0) on."""
    titles, lines = _wrapped(title, width / _TITLE_LETTER), _wrapped(message, width / _LETTER)
    top = _MARGIN + 24.0 * len(titles) + _LINE * len(lines) + 8
    head = [
        tag("text", line, x=_MARGIN, y=_MARGIN + 16 + 24 * at, class_="title", font_size=18, font_weight=700)
        for at, line in enumerate(titles)
    ]
    first = _MARGIN + 24 * len(titles) + 10
    head += [tag("text", line, x=_MARGIN, y=first + _LINE * at) for at, line in enumerate(lines)]
    body = tag("g", *content, transform=f"translate({_MARGIN} {top:.6g})")
    size = {"width": width + 2 * _MARGIN, "height": top + height + _MARGIN}
    whole = tag("svg", *head, body, xmlns="http://www.w3.org/2000/svg", font_family=_FONTS, **size)
    return rasterise(svg_string=whole, style_sheet=light_style(style), background="#ffffff", zoom=ZOOM)


def light_style(style: str) -> str:
    """A page's rules for drawings, with the light values of its variables: resvg knows neither themes nor ``var``."""
    plain = _MEDIA.sub("", re.sub(r"/\*.*?\*/", "", style, flags=re.DOTALL))
    variables = {name: value for block in _LIGHT.findall(plain) for name, value in _VARIABLE.findall(block)}
    rules = [f"svg .title {{ fill: {variables.get('ink', '#000')}; font-size: 18px; }}"]
    for selectors, body in _RULE.findall(plain):
        chosen = [name for each in selectors.split(",") if _DRAWN.match(name := each.strip())]
        if chosen:
            filled = re.sub(r"var\(--([\w-]+)\)", lambda found: variables.get(found[1], "#000"), body)
            rules.append(f"{', '.join(chosen)} {{{filled}}}")
    return "\n".join(rules)


def _legend(entries: Iterable[Series], width: float) -> tuple[list[Safe], float]:
    """Entries in lines no wider than the chart, and the height of all lines."""
    parts: list[Safe] = []
    x, y = 0.0, 0.0
    for layer in entries:
        needed = _ENTRY + len(layer.name) * _LETTER
        if x and x + needed > width:
            x, y = 0.0, y + _LINE
        parts += [
            tag("svg", swatch(layer), x=x, y=y, width=16, height=12),
            tag("text", layer.name, x=x + 22, y=y + 10),
        ]
        x += needed
    return parts, y + _LINE + 4 if parts else 0.0


def _wrapped(text: str, letters: float) -> list[str]:
    return textwrap.wrap(text, int(letters))
