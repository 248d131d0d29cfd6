"""`strata setup`: probe, ask, recommend, write the config."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import ConfigError
from strata_cli import setup_options as flag
from strata_cli.console import Console
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
    if api_key is not None and not api_key.strip():
        raise ConfigError("--api-key is empty", "give a key, or leave the flag out")
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


def _hardware(recorded: Path | None, choice: Choice) -> Hardware:
    """A recorded machine, or this one with the disk that models lie on."""
    from engine.hardware import Hardware
    from setup.config.text import read_json
    from setup.probe import ThisMachine
    from setup.probe import probe as probe_machine

    if recorded is not None:
        return Hardware.from_json(read_json(recorded))
    places = (place.expanduser() for place in choice.models_dirs)
    folder = next((place for place in places if place.is_dir()), Path.cwd())
    return probe_machine(ThisMachine(folder))


def _save_probe(path: Path, hardware: Hardware, console: Console) -> int:
    from setup.config.write import write_config

    write_config(path, hardware.to_json())
    if console.json:
        console.document(hardware.to_json())
    console.result(str(path))
    return 0


def _begin(choice: Choice, asked: Asked, hardware: Hardware, console: Console) -> Situation:
    from strata_cli.setup_session import begin
    from strata_cli.setup_view import show_machine

    start = begin(choice, asked, hardware, Path.cwd(), console)
    show_machine(hardware, start.backends, console)
    return start


def _check(start: Situation, choice: Choice, console: Console) -> int:
    from strata_cli.check_view import check_file, check_models

    if start.answers.file is not None:
        return check_file(start.planned(), console)
    if choice.model is not None:
        return check_models(start, (start.row,), console)
    rows = start.models.rows
    return check_models(
        start, [row for row in rows if choice.family in (None, row.family)], console
    )


def _fit(start: Situation, console: Console) -> int:
    """Of the model that is named, else of the recommended one."""
    from setup.fit import fit
    from setup.wizard.interview import interview, recommended
    from strata_cli.setup_view import show_fit

    situation = interview(start, recommended)
    subject = situation.subject
    assert subject is not None
    found = situation.planned()
    return show_fit(fit(subject, situation.hardware, situation.asked, found), console)


def _set_up(start: Situation, choice: Choice, console: Console) -> int:
    from setup.wizard.interview import interview
    from strata_cli import setup_session as session
    from strata_cli.setup_calibration import calibrate

    ask = session.who_answers(choice)
    try:
        situation = interview(start, ask)
        if choice.calibrate:
            calibrate(situation, console)
        drafted = session.draft(situation)
        session.show_draft(drafted, choice, console)
        if choice.dry_run:
            return session.print_draft(drafted, console)
        if not session.confirm(situation, ask):
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        console.note("\nnothing was written")
        raise
    try:
        session.get_model(situation, console)
    except KeyboardInterrupt:
        console.note("\nwhat was downloaded is kept for the next run; no config was written")
        raise
    return session.write(drafted, console)
