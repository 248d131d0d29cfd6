"""Machine code of the reference is kept for exactly the sources that it was made from."""

from pathlib import Path
from shutil import copytree, ignore_patterns

import numpy as np
import torch

from engine.reference import norms
from engine.reference.compiled import cache_folder, sources_digest

SOURCES = Path(norms.__file__).parent


def test_code_is_kept_under_the_digest_of_all_sources() -> None:
    norms.rms_norm(torch.ones(1, 32), torch.ones(32), 32, float(np.float32(1e-6)))
    kept_in: str = norms.normalise.stats.cache_path  # type: ignore[attr-defined]
    assert sources_digest(SOURCES) in kept_in
    assert cache_folder().name.endswith(sources_digest(SOURCES))


def test_a_change_of_any_file_is_other_code(tmp_path: Path) -> None:
    folder = copytree(SOURCES, tmp_path / "reference", ignore=ignore_patterns("__pycache__"))
    before = sources_digest(folder)
    assert before == sources_digest(SOURCES)
    for path in sorted(folder.glob("*.py")):
        text = path.read_text()
        path.write_text(text + "\n")
        assert sources_digest(folder) != before, path.name
        path.write_text(text)
    assert sources_digest(folder) == before
    (folder / "new.py").write_text("")
    assert sources_digest(folder) != before
