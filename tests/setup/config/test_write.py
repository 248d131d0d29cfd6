"""Writing a config: all of it or nothing, the old one kept, links and modes respected."""

from __future__ import annotations

import json
import os
import resource
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import ConfigError
from setup.config.text import read_json
from setup.config.write import write_config


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    "name", ["strata-x.json", "with a blank.json", "größe-模型.json", "x" * 240]
)
def test_keeps_a_backup_only_when_something_changes(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert write_config(path, {"port": 1})
    assert _names(tmp_path) == [name]
    assert not write_config(path, {"port": 1})
    assert _names(tmp_path) == [name]
    assert write_config(path, {"port": 2})
    assert json.loads((tmp_path / f"{name}.bak").read_text()) == {"port": 1}
    assert read_json(path) == {"port": 2}
    assert write_config(path, {"port": 3})
    assert json.loads((tmp_path / f"{name}.bak").read_text()) == {"port": 2}
    assert _names(tmp_path) == sorted([name, f"{name}.bak"])


def test_the_backup_is_the_old_file_byte_for_byte(tmp_path: Path) -> None:
    path, old = tmp_path / "strata-x.json", b'\xef\xbb\xbf{ "port":1, // mine\r\n}\xff'
    path.write_bytes(old)
    assert write_config(path, {"port": 1})
    assert (tmp_path / "strata-x.json.bak").read_bytes() == old


def test_a_link_stays_one(tmp_path: Path) -> None:
    home, link = tmp_path / "home", tmp_path / "strata-x.json"
    home.mkdir()
    target = home / "real.json"
    target.write_text("{}")
    link.symlink_to(Path("home") / "real.json")
    assert write_config(link, {"port": 2})
    assert link.is_symlink()
    assert read_json(target) == {"port": 2}
    assert _names(home) == ["real.json", "real.json.bak"]
    assert _names(tmp_path) == ["home", "strata-x.json"]


def test_a_link_to_nothing_makes_its_target(tmp_path: Path) -> None:
    link = tmp_path / "strata-x.json"
    link.symlink_to(tmp_path / "real.json")
    assert write_config(link, {"port": 2})
    assert link.is_symlink()
    assert read_json(tmp_path / "real.json") == {"port": 2}


@pytest.mark.parametrize(
    ("before", "values", "expected"),
    [
        (None, {"port": 1}, 0o640),  # 0666 without the bits of the umask below
        (None, {"api_key": "k"}, 0o600),
        (0o664, {"port": 1}, 0o664),
        (0o604, {"port": 1}, 0o604),
        (0o664, {"api_key": "k"}, 0o600),
    ],
)
def test_modes(
    tmp_path: Path, before: int | None, values: dict[str, object], expected: int
) -> None:
    path = tmp_path / "strata-x.json"
    if before is not None:
        path.write_text("{}")
        path.chmod(before)
    mask = os.umask(0o026)
    try:
        write_config(path, values)
    finally:
        os.umask(mask)
    assert _mode(path) == expected
    if before is not None:
        assert _mode(tmp_path / "strata-x.json.bak") == before


def test_a_key_is_private_in_the_backup_too(tmp_path: Path) -> None:
    path = tmp_path / "strata-x.json"
    path.write_text('{"api_key": "k"}')
    path.chmod(0o644)
    write_config(path, {"port": 1})
    assert _mode(tmp_path / "strata-x.json.bak") == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_root_leaves_a_file_to_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "strata-x.json"
    path.write_text("{}")
    os.chown(path, 1234, 1235)
    write_config(path, {"port": 1})
    for written in (path, tmp_path / "strata-x.json.bak"):
        assert (written.stat().st_uid, written.stat().st_gid) == (1234, 1235)


def _refusal(path: Path, values: dict[str, object]) -> ConfigError:
    with pytest.raises(ConfigError, match="cannot be written") as caught:
        write_config(path, values)
    assert caught.value.hint
    return caught.value


def test_a_read_only_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "strata-x.json"
    path.write_text("{}")
    path.chmod(0o444)
    assert "chmod u+w" in _refusal(path, {"port": 1}).hint
    assert path.read_text() == "{}"
    assert _names(tmp_path) == ["strata-x.json"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "strata-x.json"
    path.write_text("{}")
    tmp_path.chmod(0o555)
    try:
        assert "writable" in _refusal(path, {"port": 1}).hint
    finally:
        tmp_path.chmod(0o755)
    assert _names(tmp_path) == ["strata-x.json"]


def test_places_that_take_no_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for place in (tmp_path / "none" / "x.json", tmp_path / "file" / "x.json", loop, tmp_path, pipe):
        _refusal(place, {})
    _refusal(Path("/proc/strata-x.json"), {})
    assert _names(tmp_path) == ["file", "loop", "pipe"]


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """A limit on the size of files fails a write as a full disk does."""
    path = tmp_path / "strata-x.json"
    write_config(path, {"port": 1})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        refusal = _refusal(path, {"mine": "x" * 5000})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "free some space" in refusal.hint
    assert read_json(path) == {"port": 1}
    assert not [name for name in _names(tmp_path) if name.endswith(".tmp")]


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(), max_size=5)
    | st.sampled_from(["\ud800", "a\udfff\\", "\x7f\u2028"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(max_size=5), _JSON, max_size=4))
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, object]
) -> None:
    path = tmp_path_factory.getbasetemp() / "strata-again.json"
    write_config(path, values)
    assert read_json(path) == values
    assert not write_config(path, values)
