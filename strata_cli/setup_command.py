"""`strata setup`: probe, ask, recommend, write the config."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import ConfigError
from strata_cli import setup_options as flag
from strata_cli.console import Console
from strata_cli.folder import here
from strata_cli.options import Context, Json, Quiet, Slots, Verbose
from strata_cli.setup_calibration import refuse_calibration
from strata_cli.setup_session import Choice

if TYPE_CHECKING:
    from engine.hardware import Hardware
    from setup.asked import Asked
    from setup.wizard.situation import Situation


def setup(
    model: flag.Model = None,
    family: flag.Family = None,
    models_dir: flag.ModelsDirs = None,
    download: flag.Download = None,
    context: Context = None,
    rope_scaling: flag.RopeScaling = None,
    rope_scale: flag.RopeScale = None,
    kv: flag.Kv = None,
    kv_streaming: flag.KvStreaming = None,
    parallel: Slots = None,
    backend: flag.Backend = None,
    gpu: flag.GpuOne = None,
    gpus: flag.GpuMany = None,
    layer_split: flag.LayerSplit = None,
    low_ram: flag.LowRam = None,
    resident_budget: flag.Budget = None,
    vram_reserve: flag.Reserve = None,
    draft_vocab: flag.DraftVocab = None,
    vision: flag.Vision = None,
    pool_workers: flag.PoolWorkers = None,
    thinking: flag.Thinking = None,
    host: flag.Host = None,
    port: flag.Port = None,
    api_key: flag.ApiKey = None,
    browser: flag.Browser = None,
    yes: flag.Yes = False,
    dry_run: flag.DryRun = False,
    check: flag.Check = False,
    explain: flag.Explain = False,
    fit: flag.FitFlag = False,
    calibrate: flag.Calibrate = False,
    reset: flag.Reset = False,
    probe: flag.Probe = None,
    save_probe: flag.SaveProbe = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Probe this machine, ask what is open, and write strata-<model>.json.

    A flag answers its question. Without a terminal nothing is asked: --yes takes what is
    recommended. Setup recommends and never forces: what is asked for is kept, with what it risks.
    """
    from setup.asked import Asked
    from strata_cli.chosen import engine_flags

    console = Console(as_json, quiet, verbose)
    _check_server_flags(host, api_key)
    read = engine_flags(max_context=context, kv=kv, slots=parallel)
    asked = Asked(
        context=read.max_context,
        kv=read.kv,
        kv_streaming=kv_streaming,
        parallel=read.slots,
        gpus=flag.read_cards(gpu, gpus),
        backend=backend,
        layer_split=layer_split,
        low_ram=low_ram,
        resident_budget_gib=resident_budget,
        rope_scaling=rope_scaling,
        rope_scale=rope_scale,
        draft_vocab=draft_vocab,
        vision=None if vision == "off" else vision,
        vram_reserve_mib=vram_reserve,
        pool_workers=pool_workers,
        host=host,
        port=port,
        api_key=api_key,
        open_browser=browser,
        sampling=None if thinking is None else "thinking" if thinking else "instruct",
    )
    choice = Choice(
        model=model,
        family=family,
        models_dirs=tuple(models_dir or ()),
        download=download,
        vision_off=vision == "off",
        yes=yes,
        dry_run=dry_run,
        explain=explain,
        calibrate=calibrate,
        reset=reset,
    )
    if calibrate:
        refuse_calibration(recorded=probe is not None, dry_run=dry_run)
    hardware = _hardware(probe, choice)
    if save_probe is not None:
        return _save_probe(save_probe, hardware, console)
    start = _begin(choice, asked, hardware, console)
    if check:
        return _check(start, choice, console)
    return _fit(start, console) if fit else _set_up(start, choice, console)


def _check_server_flags(host: str | None, api_key: str | None) -> None:
    """Raises `ConfigError` for what no config could hold; a key is not shown."""
    from setup.config.keys import KEYS_BY_NAME

    if api_key is not None and not api_key.strip():
        raise ConfigError("--api-key is empty", "give a key, or leave the flag out")
    if api_key is not None and not KEYS_BY_NAME["api_key"].check(api_key):
        raise ConfigError(
            "--api-key is not usable", "keys stand between commas, without control characters"
        )
    if host is not None and not KEYS_BY_NAME["host"].check(host):
        raise ConfigError(f"--host is {host!r}, not an address", "as in --host 127.0.0.1")


def _hardware(recorded: Path | None, choice: Choice) -> Hardware:
    """A recorded machine, or this one with the disk that models lie on."""
    from engine.hardware import Hardware
    from setup.config.text import read_json
    from setup.probe import ThisMachine
    from setup.probe import probe as probe_machine

    if recorded is not None:
        record = "record this machine with `strata setup --save-probe FILE`"
        return Hardware.from_json(read_json(recorded, record, record))
    places = (Path(os.path.expanduser(place)) for place in choice.models_dirs)
    folder = next((place for place in places if os.path.isdir(place)), None)
    return probe_machine(ThisMachine(here() if folder is None else folder))


def _save_probe(path: Path, hardware: Hardware, console: Console) -> int:
    """Writes the recording; `-` is stdout."""
    from setup.config.write import write_config

    record = hardware.to_json()
    to_stdout = str(path) == "-"
    if not to_stdout:
        write_config(path, record)
        console.result(str(path))
    if console.json:
        console.document(record)
    elif to_stdout:
        console.config(record)
    return 0


def _begin(choice: Choice, asked: Asked, hardware: Hardware, console: Console) -> Situation:
    from strata_cli.setup_session import begin
    from strata_cli.setup_view import show_machine

    start = begin(choice, asked, hardware, here(), console)
    show_machine(hardware, start.backends, console)
    return start


def _check(start: Situation, choice: Choice, console: Console) -> int:
    from strata_cli.check_view import check_file, check_models

    if start.answers.file is not None:
        return check_file(start, console)
    named = start.subject
    if named is not None:
        return check_models(start, (named,), console)
    rows = start.models.rows
    subjects = [start.models.of_row(r) for r in rows if choice.family in (None, r.family)]
    return check_models(start, subjects, console)


def _fit(start: Situation, console: Console) -> int:
    """Of the model that is named, else of the recommended one."""
    from setup.fit import fit
    from setup.wizard.interview import interview, recommended
    from strata_cli.fit_view import show_fit

    situation = interview(start, recommended)
    subject = situation.subject
    assert subject is not None
    found = situation.planned()
    answers = fit(subject, situation.hardware, situation.asked, found)
    return show_fit(situation, answers, found.memory, console)


def _set_up(start: Situation, choice: Choice, console: Console) -> int:
    from setup.wizard.interview import interview
    from strata_cli import setup_session as session
    from strata_cli.setup_calibration import calibrate, forget_calibration

    ask = session.who_answers(choice)
    with _told(console, "nothing was written"):
        situation = interview(start, ask)
    if choice.calibrate:
        calibrate(situation, console)  # tells itself what Ctrl-C leaves saved
    with _told(console, "no config was written" if choice.calibrate else "nothing was written"):
        drafted = session.draft(situation, choice)
        session.show_draft(drafted, choice, console)
        if choice.dry_run:
            return session.print_draft(drafted, console)
        # Where nothing changes there is nothing to agree to.
        wanted = drafted.is_new or bool(drafted.changes)
        if wanted and not session.confirm(situation, ask):
            raise KeyboardInterrupt
    with _told(console, "what was downloaded is kept for the next run; no config was written"):
        told = session.get_model(situation, console)
    if choice.reset and not choice.calibrate:
        forget_calibration(situation, drafted.found)
    return session.write(drafted, console, told)


@contextmanager
def _told(console: Console, text: str) -> Iterator[None]:
    """Says `text` when the person stops here."""
    try:
        yield
    except KeyboardInterrupt:
        console.note(f"\n{text}")
        raise
