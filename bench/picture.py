"""Charts as a PNG file, by matplotlib (`strata-moe[plots]`), without a display."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from bench.charts import Chart
from engine.errors import ConfigError

WIDTH_INCHES, HEIGHT_INCHES, DPI = 10, 4.5, 100


def check(path: Path) -> None:
    """Raises `ConfigError` when no picture could be written to `path`: before anything is measured,
    not after it."""
    if find_spec("matplotlib") is None:
        raise ConfigError(
            "a picture needs matplotlib, which is not installed",
            'pip install "strata-moe[plots]"; --plot draws in the terminal without it',
        )
    if path.suffix.lower() != ".png":
        raise ConfigError(f"{path}: pictures are PNG files", "name one that ends in .png")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"{path}: there is no such folder", "make it, or name another one")


def write_png(charts: Sequence[Chart], path: Path) -> None:
    """One picture, a chart below the other: 1000 x 450 pixels each."""
    from matplotlib.figure import Figure

    figure = Figure(
        figsize=(WIDTH_INCHES, HEIGHT_INCHES * len(charts)), dpi=DPI, layout="constrained"
    )
    for axes, chart in zip(figure.subplots(len(charts), squeeze=False)[:, 0], charts, strict=True):
        few = max((len(line.x) for line in chart.lines), default=0) <= 40
        for line in chart.lines:
            axes.plot(line.x, line.y, marker="o" if few else None, label=line.label)
        for number, (name, begin, end) in enumerate(chart.spans):
            axes.axvspan(begin, end, color=f"C{number + 7}", alpha=0.2, label=name)
        axes.set(title=chart.title, xlabel=chart.x_label, ylabel=chart.y_label)
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    figure.savefig(path, format="png")
