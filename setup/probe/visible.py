"""Which cards the environment leaves a process: CUDA_VISIBLE_DEVICES and its relatives.

Sources: the CUDA programming guide on environment variables, the MIG user guide, ROCm's "GPU
isolation techniques".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.hardware import Gpu
from setup.probe.notes import Notes, plain

_CUDA = "CUDA_VISIBLE_DEVICES"
_ORDER = "CUDA_DEVICE_ORDER"
_MOST_WORDS = 256


@dataclass(frozen=True, slots=True)
class Card:
    """A card as the driver has it. `instances` are its MIG parts, `mig` says that it is in parts.

    `legacy` names a part by card, GPU instance and compute instance, as drivers before 470 did.
    """

    gpu: Gpu
    mig: bool = False
    instances: tuple[Gpu, ...] = ()
    legacy: tuple[str, ...] = ()


def cuda_visible(
    cards: Sequence[Card], environment: Mapping[str, str], notes: Notes
) -> tuple[Gpu, ...]:
    """What CUDA would show of `cards` (in PCI bus order), in the same order."""
    said = environment.get(_CUDA)
    if said is None:
        return _whole_or_one_part(cards, notes)
    words = _words(said)
    if words and words[0].startswith("MIG-"):
        chosen = _named_part(cards, words, notes)
    elif words and words[0].startswith("GPU-"):
        names = [card.gpu.uuid for card in cards]
        picked = _by_name(words, names, "GPU-", _CUDA, notes)
        chosen = _whole_or_one_part([cards[i] for i in sorted(picked)], notes)
    else:
        order = _numbering(cards, environment, words, notes)
        picked = _by_number(words, len(cards), _CUDA, notes)
        chosen = _whole_or_one_part([cards[i] for i in sorted(order[i] for i in picked)], notes)
    _tell_hidden(_CUDA, said, [card.gpu for card in cards], chosen, notes)
    return chosen


def hip_visible(
    gpus: Sequence[Gpu], environment: Mapping[str, str], notes: Notes
) -> tuple[Gpu, ...]:
    """What HIP would show of `gpus` (in its order): ROCR_VISIBLE_DEVICES hides cards first, then
    HIP_VISIBLE_DEVICES or, where that is not set, CUDA_VISIBLE_DEVICES counts what is left."""
    left = tuple(gpus)
    for names in (("ROCR_VISIBLE_DEVICES",), ("HIP_VISIBLE_DEVICES", _CUDA)):
        # HIP takes an empty variable for one that is not set; the runtime below it does not.
        unset = (None,) if names[0].startswith("ROCR") else (None, "")
        name = next((n for n in names if environment.get(n) not in unset), None)
        if name is None:
            continue
        words = _words(environment[name])
        if words and words[0].upper().startswith("GPU-"):
            uuids = [gpu.uuid for gpu in left]
            picked = _by_name(words, uuids, "GPU-", name, notes)
        else:
            picked = _by_number(words, len(left), name, notes)
        chosen = tuple(left[i] for i in sorted(picked))
        _tell_hidden(name, environment[name], left, chosen, notes)
        left = chosen
    return left


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")[:_MOST_WORDS]]


def _by_number(words: Sequence[str], count: int, variable: str, notes: Notes) -> list[int]:
    """Positions that numbers name. The first that is none ends the list; one said twice voids it.

    Digits at the start of a word count, as C's strtoul reads them: "1x" is 1.
    """
    found: list[int] = []
    for word in words:
        match = re.match(r"\+?(\d{1,9})", word, re.ASCII)
        if match is None or int(match[1]) >= count:
            _tell_end(variable, word, f"no number of a card (0 to {count - 1})", notes)
            break
        if int(match[1]) in found:
            notes.add(f"{variable} names card {int(match[1])} twice: then no card is visible")
            return []
        found.append(int(match[1]))
    return found


def _by_name(
    words: Sequence[str], names: Sequence[str], prefix: str, variable: str, notes: Notes
) -> list[int]:
    """Positions of the cards whose names begin so. A word must fit exactly one card."""
    found: list[int] = []
    for word in words:
        fits = [i for i, name in enumerate(names) if name.lower().startswith(word.lower())]
        if len(word) <= len(prefix) or len(fits) != 1:
            _tell_end(variable, word, f"the begin of {len(fits)} cards' names, not of one", notes)
            break
        if fits[0] in found:
            notes.add(f"{variable} names {word} twice: then no card is visible")
            return []
        found.append(fits[0])
    return found


def _numbering(
    cards: Sequence[Card], environment: Mapping[str, str], words: Sequence[str], notes: Notes
) -> list[int]:
    """Positions in `cards` by CUDA's numbers: PCI bus order if asked, else the fastest card first.

    How CUDA measures speed is not documented; cores times clock is taken. Equal cards keep the
    order of the bus.
    """
    places = list(range(len(cards)))
    if environment.get(_ORDER) == "PCI_BUS_ID" or len({card.gpu.name for card in cards}) < 2:
        return places
    order = sorted(places, key=lambda i: (-_speed(cards[i].gpu), i))
    if order != places and any(words):
        names = ", ".join(f"{n} {cards[i].gpu.name}" for n, i in enumerate(order))
        notes.add(
            f"{_CUDA} counts cards fastest first, taken to be {names}; "
            f"set {_ORDER}=PCI_BUS_ID to count them as nvidia-smi does"
        )
    return order


def _speed(gpu: Gpu) -> int:
    return gpu.cores * gpu.clock_mhz


def _whole_or_one_part(cards: Sequence[Card], notes: Notes) -> tuple[Gpu, ...]:
    """Whole cards; a process gets one MIG part, and only where there is no whole card."""
    for card in cards:
        if card.mig and not card.instances:
            notes.add(f"{_title(card.gpu)} is in MIG mode and has no instance: it cannot be used")
    whole = tuple(card.gpu for card in cards if not card.mig)
    parts = [part for card in cards for part in card.instances]
    if not parts:
        return whole
    names = ", ".join(f"{part.uuid} ({part.vram_gib:.1f} GiB)" for part in parts)
    what = "the whole cards are taken" if whole else f"{parts[0].uuid} is taken"
    notes.add(
        f"MIG instances here: {names}; a process gets whole cards or one instance: {what}; "
        f"choose an instance with {_CUDA}"
    )
    return whole or (parts[0],)


def _named_part(cards: Sequence[Card], words: Sequence[str], notes: Notes) -> tuple[Gpu, ...]:
    parts = [
        (name, part)
        for card in cards
        for part, legacy in zip(card.instances, card.legacy, strict=True)
        for name in (part.uuid, legacy)
    ]
    # CUDA shows one instance, the first that is named.
    word = words[0].lower()
    fits = {part.uuid: part for name, part in parts if name.lower().startswith(word)}
    if len(word) <= len("MIG-") or len(fits) != 1:
        _tell_end(_CUDA, words[0], f"the begin of {len(fits)} instances' names, not of one", notes)
        return ()
    if len(words) > 1:
        notes.add(f"{_CUDA} names {len(words)} devices: a process gets one MIG instance, the first")
    return tuple(fits.values())


def _tell_end(variable: str, word: str, why: str, notes: Notes) -> None:
    # An empty list and -1 are the usual ways to hide every card.
    if word not in ("", "-1"):
        shown = plain(word, 60)
        notes.add(f"{variable}: {shown!r} is {why}; it and what follows it count for nothing")


def _tell_hidden(
    variable: str, said: str, gpus: Sequence[Gpu], chosen: Sequence[Gpu], notes: Notes
) -> None:
    places = {gpu.pci_bus_id for gpu in chosen}
    hidden = [_title(gpu) for gpu in gpus if gpu.pci_bus_id not in places]
    if hidden:
        notes.add(f"{variable}={plain(said, 60)} hides {'; '.join(hidden)}")


def _title(gpu: Gpu) -> str:
    return f"GPU {gpu.index}: {gpu.name} ({gpu.uuid})"
