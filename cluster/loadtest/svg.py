"""Draw plots as SVG, with nothing but text. Pure.

Lines break where there is no value; what is stacked is drawn as bars. Colours are those of Okabe
and Ito, which colour-blind people can tell apart, and go round again in lighter shades.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from cluster.loadtest.series import Plot, Values

WIDTH, HEIGHT = 640, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 12, 26
_COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#b8a800", "#666666",
    "#7fb8d8", "#f2cf7f", "#7fcfb9", "#eaaf7f", "#e5bcd3", "#abd9f4", "#dbd37f", "#b2b2b2",
)  # fmt: skip

Marks = Sequence[tuple[float, str]]
"""Times at which something begins, and its name."""


class _Frame:
    """Where values stand in the picture."""

    def __init__(self, end_s: float, top: float) -> None:
        self.end_s = end_s or 1.0
        self.top = top

    def x(self, at_s: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * at_s / self.end_s

    def y(self, value: float) -> float:
        return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * value / self.top


def draw(plot: Plot, end_s: float, marks: Marks) -> str:
    """Return a plot as an SVG element.

    Args:
        plot: What to draw.
        end_s: Where its time ends.
        marks: Beginnings of phases.
    """
    levels = _levels(plot)
    frame = _Frame(end_s, nice_top(max((v for line in levels for v in line if v), default=0.0)))
    parts = [*_grid(frame), *_marks(frame, marks)]
    floor: Values = [0.0] * len(plot.times_s)
    for number, line in enumerate(levels):
        colour = _COLOURS[number % len(_COLOURS)]
        if plot.stacked:
            parts += _bars(frame, plot.times_s, floor, line, colour)
            floor = line
        else:
            parts += _line(frame, plot.times_s, line, colour)
    body = "".join(parts)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(plot.title)}">{body}</svg>'
    )


def legend(plot: Plot) -> str:
    """Return the names of a plot's lines with their colours, as HTML."""
    entries = (
        f'<span><i style="background:{_COLOURS[number % len(_COLOURS)]}"></i>{escape(name)}</span>'
        for number, name in enumerate(plot.lines)
    )
    return f'<p class="legend">{"".join(entries)}</p>'


def nice_top(highest: float) -> float:
    """Return where an axis ends that must hold a value: 1, 2 or 5 times a power of ten.

    >>> nice_top(0.83), nice_top(17.0), nice_top(0.0)
    (1.0, 20.0, 1.0)
    """
    if highest <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest))
    return next(step * power for step in (1, 2, 5, 10) if highest <= step * power * (1 + 1e-9))


def _levels(plot: Plot) -> list[Values]:
    """Return where each line runs: stacked ones on top of those before."""
    if not plot.stacked:
        return list(plot.lines.values())
    sums: Values = [0.0] * len(plot.times_s)
    levels = []
    for line in plot.lines.values():
        sums = [
            None if low is None or value is None else low + value
            for low, value in zip(sums, line, strict=True)
        ]
        levels.append(sums)
    return levels


def _grid(frame: _Frame) -> list[str]:
    parts = []
    for step in range(5):
        value = frame.top * step / 4
        y = frame.y(value)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for step in range(7):
        at_s = frame.end_s * step / 6
        parts.append(
            f'<text x="{frame.x(at_s):.1f}" y="{HEIGHT - 8}" text-anchor="middle">'
            f"{at_s:.0f} s</text>"
        )
    return parts


def _marks(frame: _Frame, marks: Marks) -> list[str]:
    parts = []
    for at_s, name in marks:
        x = frame.x(at_s)
        parts.append(
            f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>'
            f'<text class="mark" x="{x + 3:.1f}" y="{_TOP + 8}">{escape(name)}</text>'
        )
    return parts


def _runs(line: Values) -> list[range]:
    """Return the stretches without a gap."""
    runs, start = [], None
    for number, value in enumerate([*line, None]):
        if value is not None and start is None:
            start = number
        if value is None and start is not None:
            runs.append(range(start, number))
            start = None
    return runs


def _line(frame: _Frame, times_s: Sequence[float], line: Values, colour: str) -> list[str]:
    parts = []
    for run in _runs(line):
        points = _points(frame, times_s, line, run)
        if len(run) == 1:
            x, y = points.split(",")
            parts.append(f'<circle cx="{x}" cy="{y}" r="2" fill="{colour}"/>')
        else:
            parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}"/>')
    return parts


def _bars(
    frame: _Frame, times_s: Sequence[float], floor: Values, line: Values, colour: str
) -> list[str]:
    """Return a bar for each value, from where the one below it ends, as wide as its stretch."""
    width = frame.x(_spacing(times_s, frame.end_s)) - frame.x(0.0)
    return [
        f'<rect fill="{colour}" x="{frame.x(at_s) - width / 2:.1f}" y="{frame.y(top):.1f}" '
        f'width="{width:.1f}" height="{frame.y(bottom) - frame.y(top):.1f}"/>'
        for at_s, bottom, top in zip(times_s, floor, line, strict=True)
        if bottom is not None and top is not None and top > bottom
    ]


def _spacing(times_s: Sequence[float], end_s: float) -> float:
    return times_s[1] - times_s[0] if len(times_s) > 1 else end_s


def _points(frame: _Frame, times_s: Sequence[float], line: Values, run: range) -> str:
    return " ".join(
        f"{frame.x(times_s[number]):.1f},{frame.y(line[number] or 0.0):.1f}" for number in run
    )
