"""Checks every kernel against the CPU, then times them: `python -m scripts.order_of_sums`.

Checks (and the compilation of everything that is timed) run in several processes; timings in one.
Results go to the folder in $OUT, or to the current one: checks.json, timings.json.
"""

import argparse
import datetime
import json
import multiprocessing
import os
import time
from pathlib import Path

import torch

from scripts.order_of_sums import checks, timings
from scripts.order_of_sums.jobs import job, timing
from scripts.order_of_sums.timings import Timing


def record(t: Timing, rate: float) -> dict[str, object]:
    """A timing as bench/results keeps it, beside its floor at `rate` bytes a second."""
    return {
        "metric": t.metric,
        "value": round(t.value, 2),
        "unit": "us",
        "shape": t.shape,
        "rows": t.rows,
        "floor_us": round(t.bytes / rate * 1e6, 2),
        "gpu": torch.cuda.get_device_name(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def main() -> None:
    """Runs everything within --seconds; what does not fit is left out and said."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--workers", type=int, default=min(14, os.cpu_count() or 1))
    parser.add_argument("--only", default="", help="part of a function's name")
    parser.add_argument("--out", type=Path, default=Path(), help="folder of the records")
    args = parser.parse_args()
    begin = time.time()
    out = args.out
    todo = [
        ("check", i) for i, case in enumerate(checks.cases("cuda")) if args.only in case[0].__name__
    ]
    compiles = [
        ("compile", i) for i, case in enumerate(timings.cases()) if args.only in case[0].__name__
    ]
    results: list[tuple[str, bool, str]] = []
    context = multiprocessing.get_context("spawn")
    with context.Pool(args.workers) as pool:
        waiting = pool.imap_unordered(job, todo + compiles)
        try:
            for _ in range(len(todo) + len(compiles)):
                results.extend(waiting.next(max(1.0, begin + args.seconds * 0.6 - time.time())))
        except multiprocessing.TimeoutError:
            print("checks or compilation cut short", flush=True)
        pool.terminate()
        pool.join()
    (out / "checks.json").write_text(json.dumps(results, indent=0))
    bad = [result for result in results if not result[1]]
    print(f"checks {len(results)}, failed {len(bad)}, {time.time() - begin:.0f} s", flush=True)
    for result in bad:
        print("FAILED", *result, flush=True)
    rate, lines = 4.28e12, []
    for _, index in compiles:
        if time.time() - begin > args.seconds:
            print("timings cut short at", index, flush=True)
            break
        for t in timing(index, False):
            if t.metric == "copy":
                rate = t.bytes / t.value * 1e6
            lines.append(record(t, rate))
            floor = lines[-1]["floor_us"]
            print(
                f"{t.metric:55} {t.shape:26} {t.rows:5} {t.value:9.2f} us, floor {floor}",
                flush=True,
            )
        (out / "timings.json").write_text(json.dumps(lines, indent=0))
    print(f"done {time.time() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
