"""Downloads that come to their end: what is asked for, what is there afterwards."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import ConfigError
from setup.models.catalogue import ModelFile
from setup.models.download import plan_download
from setup.models.hub.client import open_client
from setup.models.hub.part_file import part_path
from tests.setup.hub_case import FIRST, SECOND, Case, content, model_row, running
from tests.setup.hub_server import Fault, HubFiles, hub_server


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    with running(tmp_path / "models") as made:
        yield made


def test_a_model_is_got_whole(case: Case) -> None:
    """With the client that a real download has."""
    case.connect = open_client
    assert case.run() == case.folder / FIRST
    case.assert_whole()
    assert case.notes == []
    assert case.pauses == []
    assert [a.path for a in case.hub.asked] == [
        f"/api/models/owner/model/tree/{case.row.revision}/IQ3_S",
        f"/owner/model/resolve/{case.row.revision}/{FIRST}",
        f"/owner/model/resolve/{case.row.revision}/{SECOND}",
    ]


def test_progress_counts_the_whole_model(case: Case) -> None:
    case.run()
    done = [d for d, _, _ in case.told]
    assert done == sorted(done)
    # 300,000 + 1,000 bytes
    assert case.told[-1] == (301_000, 301_000, "m-00002-of-00002.gguf")
    assert (300_000, 301_000, "m-00001-of-00002.gguf") in case.told
    assert len(case.told) > 4


def test_a_second_run_asks_nobody(case: Case) -> None:
    case.run()
    asked = len(case.hub.asked)
    assert case.run() == case.folder / FIRST
    assert len(case.hub.asked) == asked


@pytest.mark.parametrize("lfs", [True, False])
def test_a_mirror_without_the_listing_is_asked_for_each_file(case: Case, lfs: bool) -> None:
    """With and without a SHA-256 in its answers: the catalogue's counts."""
    case.hub.tree, case.hub.lfs = False, lfs
    case.run()
    case.assert_whole()
    assert len([a for a in case.hub.asked if a.method == "HEAD"]) == 2
    assert not [a for a in case.hub.asked if a.path == "/nowhere" and a.method == "GET"]


def test_the_listing_may_have_pages(case: Case) -> None:
    case.hub.page = 1
    case.run()
    case.assert_whole()


@pytest.mark.parametrize("tree", [True, False])
def test_a_lost_revision_is_replaced_by_the_same_files_at_main(case: Case, tree: bool) -> None:
    case.hub.revisions, case.hub.tree = ("main",), tree
    case.run()
    case.assert_whole()
    assert len(case.notes) == 1
    assert "aaaaaaaaaaaa" in case.notes[0]
    assert "main" in case.notes[0]
    assert case.hub.asked[-1].path == f"/owner/model/resolve/main/{SECOND}"


@pytest.mark.parametrize("cut", [1, 999, 65_536, 299_999])
def test_a_cut_download_goes_on_where_it_stopped(case: Case, cut: int) -> None:
    case.hub.faults = [Fault(cut=cut)]
    case.run()
    case.assert_whole()
    assert case.hub.bytes_asked(FIRST) == [None, cut]
    assert case.hub.asked[2].if_range.startswith('"')
    assert case.pauses == [1.0]


def test_the_next_run_goes_on_too(case: Case) -> None:
    case.limits = replace(case.limits, attempts=1)
    case.hub.faults = [Fault(cut=1_234)]
    case.refused("the connection failed", "1 failures in a row")
    assert part_path(case.folder / FIRST).stat().st_size == 1_234
    # 300,000 - 1,234 of the first and 1,000 of the second
    assert plan_download(case.row, case.folder) == 299_766
    case.run()
    case.assert_whole()
    assert case.hub.bytes_asked(FIRST) == [None, 1_234]
    assert case.notes == ["m-00001-of-00002.gguf: goes on at 1.2 kB of 300.0 kB"]


def test_ctrl_c_leaves_the_part_for_the_next_run(case: Case) -> None:
    def interrupt(done: int) -> None:
        if done > 100_000:
            raise KeyboardInterrupt

    case.on_bytes = interrupt
    with pytest.raises(KeyboardInterrupt):
        case.run()
    stopped = part_path(case.folder / FIRST).stat().st_size
    assert 100_000 < stopped < 300_000
    case.on_bytes = lambda done: None
    case.run()
    case.assert_whole()
    assert case.hub.bytes_asked(FIRST) == [None, stopped]


@pytest.fixture
def _heard_ctrl_c() -> Iterator[None]:
    """A job in the background begins with SIGINT ignored: the test wants it heard."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals to threads")
@pytest.mark.usefixtures("_heard_ctrl_c")
def test_a_real_ctrl_c_while_waiting_for_bytes_keeps_the_part(case: Case) -> None:
    """The signal comes after 1,000 bytes, while the second answer is awaited."""

    def interrupt() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    case.hub.faults = [Fault(cut=1_000), Fault(before=interrupt, stall_s=0.2)]
    with pytest.raises(KeyboardInterrupt):
        case.run()
    assert part_path(case.folder / FIRST).stat().st_size == 1_000
    case.run()
    case.assert_whole()
    assert case.hub.bytes_asked(FIRST) == [None, 1_000, 1_000]


def test_a_slow_start_is_no_stall(case: Case) -> None:
    case.hub.faults = [Fault(stall_s=0.1)]
    case.run()
    case.assert_whole()
    assert case.pauses == []


def test_bytes_may_come_from_another_host_without_the_token(case: Case) -> None:
    """The hub sends the client on, and only the hub may see the token."""
    with hub_server(HubFiles(files=case.hub.files)) as cdn:
        case.hub.faults = [Fault(redirect=cdn.endpoint)] * 3
        cdn.faults = [Fault(cut=500)]
        case.run(HF_TOKEN="hf_secret")
    case.assert_whole()
    assert [(a.start, a.token) for a in cdn.asked] == [(None, ""), (500, ""), (None, "")]
    assert {a.token for a in case.hub.asked} == {"Bearer hf_secret"}


def test_the_token_opens_a_gated_model(case: Case) -> None:
    case.hub.gate, case.hub.token = (403, "GatedRepo"), "hf_secret"
    case.run(HF_TOKEN=" hf_secret\n")
    case.assert_whole()


def test_a_plan_without_sizes_goes_by_the_rows_total(tmp_path: Path) -> None:
    files = (ModelFile(path=FIRST), ModelFile(path=SECOND))
    row = model_row(files=files, download_gb=66.4)
    assert plan_download(row, tmp_path) == 66_400_000_000
    part = part_path(tmp_path / FIRST)
    part.parent.mkdir()
    part.write_bytes(bytes(1_000))
    assert plan_download(row, tmp_path) == 66_399_999_000


@given(
    cuts=st.lists(st.integers(0, 4_000), max_size=12),
    size=st.integers(4, 20_000),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_is_cut_each_byte_is_asked_for_once(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], size: int
) -> None:
    """A cut never costs a byte: each request begins where the bytes of the ones before end."""
    with running(tmp_path_factory.mktemp("cuts")) as case:
        case.hub.files = {FIRST: content(size, size)}
        case.row = model_row(case.hub.files)
        case.hub.faults = [Fault(cut=cut) for cut in cuts]
        case.limits = replace(case.limits, attempts=len(cuts) + 1)
        case.run()
        case.assert_whole()
        starts = case.hub.bytes_asked(FIRST)
    assert starts[0] is None
    wanted, at = [], 0
    for cut in [*cuts, size]:
        wanted.append(at or None)
        at += cut
        if at >= size:
            break
    assert starts == wanted


FAULTS = st.one_of(
    st.builds(Fault, cut=st.integers(0, 3_000)),
    st.builds(Fault, cut=st.integers(0, 3_000), whole=st.just(True)),
    st.builds(Fault, cut=st.integers(0, 3_000), chunked=st.just(True)),
    st.builds(Fault, status=st.sampled_from([408, 416, 429, 500, 503])),
    st.builds(Fault, shift=st.integers(-5, 5).filter(bool)),
    st.just(Fault(headers={"ETag": '"another"'}, cut=100)),
)


@given(faults=st.lists(FAULTS, max_size=8), attempts=st.integers(1, 3), size=st.integers(4, 9_000))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_fails_the_file_is_right_in_the_end(
    tmp_path_factory: pytest.TempPathFactory, faults: list[Fault], attempts: int, size: int
) -> None:
    """Over as many runs as it takes: each ends in an error with a hint, or with the whole file."""
    with running(tmp_path_factory.mktemp("faults")) as case:
        case.hub.files = {FIRST: content(size, size)}
        case.row = model_row(case.hub.files)
        case.hub.faults = list(faults)
        case.limits = replace(case.limits, attempts=attempts)
        errors: list[ConfigError] = []
        for _ in range(len(faults) + 1):
            try:
                case.run()
                break
            except ConfigError as error:
                errors.append(error)
        case.assert_whole()
    assert all(error.hint for error in errors)
