"""How busy cards are: who is asked, and that not knowing it is said once."""

from __future__ import annotations

import threading

import httpx
import pytest

import bench.watch
from bench.watch import Watch, amd_shares, gpu_of


def test_a_watch_asks_until_there_is_nothing_to_ask() -> None:
    answers: list[float | None] = [0.5, 1.0, None]
    asked = threading.Event()

    def ask() -> float | None:
        answer = answers.pop(0)
        if answer is None:
            asked.set()
        return answer

    with Watch(ask, 0.001) as watch:
        assert asked.wait(10)
    assert watch.found == [0.5, 1.0]
    assert watch.mean == 0.75
    assert Watch(ask, 1.0).mean is None


def test_amds_files_are_read() -> None:
    texts = {"a": "37\n", "b": "100\n", "c": "", "d": "busy"}
    assert amd_shares(list(texts), texts.__getitem__) == [0.37, 1.0]


@pytest.mark.parametrize(
    ("url", "share", "told"),
    [
        ("http://127.0.0.1:8080", 0.25, []),
        ("http://localhost:8080/v1", 0.25, []),
        (
            "http://127.0.0.1:8080",
            None,
            ["GPU utilisation: not known, no driver of a card"],
        ),
        ("http://10.1.2.3:8080", 0.25, ["GPU utilisation: not known, the server is on another"]),
    ],
)
def test_only_cards_of_this_machine_are_asked(
    url: str, share: float | None, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.watch, "gpu_share", lambda: share)
    heard: list[str] = []
    with httpx.Client(base_url=url) as http:
        ask = gpu_of(http, heard.append)
    assert ask() == (None if told else share)
    assert len(heard) == len(told)
    assert all(a.startswith(b) for a, b in zip(heard, told, strict=True))
