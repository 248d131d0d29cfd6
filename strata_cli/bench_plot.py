"""`strata bench plot`, and the plots of a suite that has run."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.errors import ConfigError
from strata_cli.bench_options import Png, Wanted
from strata_cli.options import given_path

if TYPE_CHECKING:
    from bench.charts import Records

_WIDEST = 120
_DRAWN = "decode, prefill, serve, and join with prompts beside streams are drawn"


def plot(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", parser=given_path)],
    png: Png = None,
) -> int:
    """Draw a run that was saved, in the terminal or as a picture: answers and prompts by their
    number, percentiles of clients, and what streams wrote while a prompt was read. A run is what
    --json printed, or a file of records, of which the last ones of the last model count."""
    from bench import picture
    from bench.charts import of_last_run
    from bench.compare import read_records

    if png is not None:
        picture.check(png)
    if not draw(of_last_run(read_records(results)), Wanted(plot=png is None, png=png)):
        raise ConfigError(f"{results}: nothing here can be drawn", _DRAWN)
    return 0


def draw(records: Records, wanted: Wanted) -> bool:
    """Draws records where that is wanted; whether there is something to draw."""
    if not wanted.plot and wanted.png is None:
        return True
    from bench.charts import charts

    try:
        found = charts(records)
    except (KeyError, TypeError, ValueError):
        raise ConfigError("these records are not what a suite of strata bench saves") from None
    if not found:
        return False
    if wanted.png is not None:
        from bench.picture import write_png

        write_png(found, wanted.png)
        wanted.console.note(f"drawn in {wanted.png}")
    if wanted.plot:
        from bench.terminal_plot import drawn

        width = min(_WIDEST, shutil.get_terminal_size().columns)
        text = "\n\n".join(drawn(chart, width) for chart in found)
        if _can_be_shown(text):
            wanted.console.drawing("\n" + text)
        else:
            wanted.console.warn(
                "stdout takes no characters to draw with; it does with PYTHONUTF8=1, and --png "
                "FILE.png writes a picture"
            )
    return True


def _can_be_shown(text: str) -> bool:
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True
