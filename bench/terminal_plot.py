"""Charts as text: braille dots and, on a terminal that wants them, colours."""

from __future__ import annotations

from typing import Any

import plotille

from bench.charts import Chart, Line

HEIGHT = 16
_MARKERS = "ox+*#@"
_FEW = 40
"""Points of a line that are marked."""
_COLOURS = ("cyan", "yellow", "magenta", "green", "red", "blue")
_BESIDE = 22
"""Columns of the y axis with its numbers, and of the x axis' arrow."""


def drawn(chart: Chart, width: int) -> str:
    """Title, axes with numbers, dots and legend: lines of `width` columns, if 60 or more."""
    figure = plotille.Figure()
    figure.width, figure.height = max(20, width - _BESIDE - len(chart.x_label)), HEIGHT
    figure.x_label, figure.y_label = chart.x_label, chart.y_label
    figure.register_label_formatter(float, _number)
    figure.register_label_formatter(int, _number)
    highest = max((max(line.y, default=0.0) for line in chart.lines), default=0.0) or 1.0
    furthest = max((max(line.x, default=0.0) for line in chart.lines), default=0.0) or 1.0
    figure.set_x_limits(min_=0, max_=1.05 * furthest)
    figure.set_y_limits(min_=0, max_=1.1 * highest)
    for number, line in enumerate(chart.lines):
        marker = _MARKERS[number % len(_MARKERS)] if len(line.x) <= _FEW else None
        _add(figure, line, number, marker)
    for number, (name, begin, end) in enumerate(chart.spans):
        over = Line(name, (begin, end), (1.05 * highest,) * 2)
        _add(figure, over, len(chart.lines) + number, "=")
    return f"{chart.title}\n{figure.show(legend=True)}"


def _add(figure: Any, line: Line, number: int, marker: str | None) -> None:
    colour = _COLOURS[number % len(_COLOURS)]
    figure.plot(line.x, line.y, lc=colour, label=line.label, marker=marker)


def _number(value: float, chars: int, delta: float, left: bool = False) -> str:
    """Three digits are as many as a row of text can show."""
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return text.ljust(chars) if left else text.rjust(chars)
