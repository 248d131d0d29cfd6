"""What a worker process runs: one check, or the compilation of one timing."""

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
