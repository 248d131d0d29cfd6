"""llama.cpp as an outside oracle of whole models: its greedy tokens and its drafts on a GGUF.

    python -m tests.oracles.llamacpp MODEL.gguf DRAFTS ID...

runs one drafting step with everything logged; `draft_candidates` reads that log.
"""

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.peers import Generation, decode_speed, draft_acceptance, draftable, generate, greedy

__all__ = ["Drafts", "Generation", "decode_speed", "draft_acceptance", "draft_candidates"]
__all__ += ["generate", "greedy"]

ROOT = Path(__file__).parents[2]

CANDIDATES = 10
"""Best tokens whose probabilities llama.cpp normalises among themselves for a draft."""


@dataclass(frozen=True, slots=True)
class Drafts:
    """llama.cpp's first draft round: the token it sampled after the prompt, then for each draft
    step the best tokens with their probabilities among the ten best."""

    sampled: int
    steps: tuple[tuple[tuple[int, float], ...], ...]


def draft_candidates(path: Path, ids: Sequence[int], drafts: int, folder: Path) -> Drafts:
    """Candidates of the first `drafts` draft steps after the prompt `ids`."""
    copy = draftable(path.resolve(), folder / "draftable.gguf")
    command = [sys.executable, "-m", "tests.oracles.llamacpp", str(copy), str(drafts)]
    command += [str(token) for token in ids]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    log = run.stderr.decode(errors="replace")
    sampled = re.search(r"generate_draft: id=(\d+)", log)
    found = re.findall(r"draft candidate +\d+, pos +(\d+): +(\d+) \( +([\d.]+)\)", log)
    steps: list[list[tuple[int, float]]] = []
    for position, token, chance in found:
        if len(steps) == drafts and int(position) == 0:
            break
        if int(position) == len(steps):
            steps.append([])
        steps[int(position)].append((int(token), float(chance)))
    if sampled is None:
        raise ValueError("llama.cpp logged no draft")
    return Drafts(int(sampled[1]), tuple(tuple(step) for step in steps))


if __name__ == "__main__":
    generate(
        Path(sys.argv[1]),
        [int(token) for token in sys.argv[3:]],
        int(sys.argv[2]) + 2,
        drafts=int(sys.argv[2]),
        past_end=True,
        verbosity=10,
    )
