"""A figure as SVG inside the page: no ids that clash, no comments, and the page's colours, so that it can be dark."""

from __future__ import annotations

import re
from html import escape

from gptlab.show.figures import style

# Colours of the style that the page may exchange when it is dark; the fallback is the style's own.
EXCHANGED = {
    "#ffffff": "paper", style.INK: "ink", style.GHOST: "ghost", style.GRID: "grid", "#f6f6f6": "stripe",
    "#444444": "soft", "#555555": "soft", "#666666": "soft", "#777777": "soft", "#888888": "soft",
    style.BLUE: "blue", style.VERMILION: "vermilion", style.GREEN: "green", style.PURPLE: "purple",
    style.ORANGE: "orange",
}  # fmt: skip
REMS = 66 / 756  # per point: the widest figures have 756, and the page gives them 66 rem
LEAST = 50.0  # rem that a wide figure keeps on a phone, which scrolls it: or its letters could not be read
_STYLED = re.compile(r'style="[^"]*"')
_PLACES = re.compile(r' (?:d|x|y)="[^"]*"')
_DIGITS = re.compile(r"(\.\d\d)\d+")  # a hundredth of a point is more than can be seen
_COLOR = re.compile("|".join(map(re.escape, EXCHANGED)), re.IGNORECASE)


def inline(text: str, prefix: str, label: str) -> str:
    """The SVG file `text` as an element, with `label` for those who cannot see it. For gptlab's own figures only."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', text)
    text = re.sub(r'(href="|url\()#', rf"\g<1>#{prefix}-", text)
    text = _STYLED.sub(lambda found: _COLOR.sub(_variable, found[0]), text)
    text = re.sub(r"\s*\n\s*", "\n", text)
    text = _PLACES.sub(lambda found: _DIGITS.sub(r"\1", found[0]), text)
    return re.sub(r'^<svg [^>]*?viewBox="([^"]*)"[^>]*>', lambda found: _opening(found[1], label), text).strip()


def _opening(box: str, label: str) -> str:
    """The element's first tag. Letters are as large in a small figure as in a wide one, so it is not blown up."""
    most = float(box.split()[2]) * REMS
    size = f"max-width: {most:.1f}rem; min-width: min({LEAST:g}rem, {most:.1f}rem)"
    return f'<svg viewBox="{box}" style="{size}" role="img" aria-label="{escape(label)}">'


def _variable(found: re.Match[str]) -> str:
    return f"var(--figure-{EXCHANGED[found[0].lower()]}, {found[0]})"
