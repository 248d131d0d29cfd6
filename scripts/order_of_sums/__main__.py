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
from scripts.order_of_sums.timings import Timing

WIDE = {(10240, 2560), (2560, 6144)}


def timing(index: int, dry: bool) -> list[Timing]:
    """Runs one timing case; an error becomes a printed line, not the end."""
    function, arguments = timings.cases()[index]
    extra: tuple[object, ...] = (dry,)
    if function is timings.integer:
        extra = (dry, tuple(arguments[1:]) in WIDE and arguments[0] in checks.KINDS[:2])
    done: list[Timing] = []
    try:
        done.extend(function(*arguments, *extra))
        torch.cuda.synchronize()
    except Exception as error:
        print("ERROR", function.__name__, arguments, repr(error)[:300], flush=True)
    return done


def job(item: tuple[str, int]) -> list[tuple[str, bool, str]]:
    """Worker: one check, or the compilation of one timing."""
    torch.set_num_threads(1)
    what, index = item
    if what == "compile":
        timing(index, True)
        torch.cuda.empty_cache()
        return []
    function, arguments = checks.cases("cuda")[index]
    done: list[tuple[str, bool, str]] = []
    try:
        done.extend(function(*arguments))
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    except Exception as error:
        name = f"{function.__name__} {[getattr(a, 'name', a) for a in arguments]}"
        done.append((name, False, "ERROR " + repr(error)[:300]))
    return done


def main() -> None:
    """Runs everything within --seconds; what does not fit is left out and said."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--workers", type=int, default=min(14, os.cpu_count() or 1))
    parser.add_argument("--only", default="", help="part of a function's name")
    args = parser.parse_args()
    begin = time.time()
    out = Path(os.environ.get("OUT", "."))
    todo = [
        ("check", i) for i, case in enumerate(checks.cases("cuda")) if args.only in case[0].__name__
    ]
    compiles = [
        ("compile", i) for i, case in enumerate(timings.cases()) if args.only in case[0].__name__
    ]
    results: list[tuple[str, bool, str]] = []
    context = multiprocessing.get_context("spawn")
    with context.Pool(args.workers) as pool:
        for done in pool.imap_unordered(job, compiles + todo):
            results.extend(done)
            if time.time() - begin > args.seconds * 0.6:
                print("checks cut short", flush=True)
                pool.terminate()
                break
    (out / "checks.json").write_text(json.dumps(results, indent=0))
    bad = [result for result in results if not result[1]]
    print(f"checks {len(results)}, failed {len(bad)}, {time.time() - begin:.0f} s", flush=True)
    for result in bad:
        print("FAILED", *result, flush=True)
    gpu = torch.cuda.get_device_name()
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    rate, lines = 4.28e12, []
    for _, index in compiles:
        if time.time() - begin > args.seconds:
            print("timings cut short at", index, flush=True)
            break
        for t in timing(index, False):
            if t.metric == "copy":
                rate = t.bytes / t.value * 1e6
            record = {"metric": t.metric, "value": round(t.value, 2), "unit": "us", "shape": t.shape,
                      "rows": t.rows, "floor_us": round(t.bytes / rate * 1e6, 2), "gpu": gpu, "date": date}  # fmt: skip
            lines.append(record)
            print(
                f"{t.metric:55} {t.shape:26} {t.rows:5} {t.value:9.2f} us floor {record['floor_us']}",
                flush=True,
            )
        (out / "timings.json").write_text(json.dumps(lines, indent=0))
    print(f"done {time.time() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
