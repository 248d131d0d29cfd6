"""Which cards the environment leaves a process: CUDA_VISIBLE_DEVICES and its relatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.hardware import Gpu
from setup.probe.notes import Notes, plain
from setup.probe.visible_list import VisibleList

_CUDA = "CUDA_VISIBLE_DEVICES"
_ORDER = "CUDA_DEVICE_ORDER"
_ROCR = "ROCR_VISIBLE_DEVICES"
_HIP = "HIP_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class Card:
    """An NVIDIA card as the driver has it. `mig`: it is cut into `instances`.

    `legacy` names an instance by its card, GPU instance and compute instance, as drivers before
    470 did.
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
    if said is None or not cards:
        return _usable_together(cards, notes)
    listed = VisibleList.read(_CUDA, said)
    if listed.first == "MIG-":
        chosen = _named_instance(cards, listed, notes)
    else:
        order = _numbering(cards, environment, listed, notes)
        positions = listed.positions([cards[i].gpu.uuid for i in order], notes)
        chosen = _usable_together([cards[i] for i in sorted(order[n] for n in positions)], notes)
    _tell_hidden(_CUDA, said, [card.gpu for card in cards], chosen, notes)
    return chosen


def hip_visible(
    gpus: Sequence[Gpu], environment: Mapping[str, str], notes: Notes
) -> tuple[Gpu, ...]:
    """What HIP would show of `gpus`, in its order.

    ROCR_VISIBLE_DEVICES hides cards first. HIP_VISIBLE_DEVICES, or CUDA_VISIBLE_DEVICES where it is
    not set, counts what is left. HIP takes an empty variable for one that is not set.
    """
    hip = environment.get(_HIP) or environment.get(_CUDA) or None
    name = _HIP if environment.get(_HIP) else _CUDA
    left = tuple(gpus)
    for variable, said in ((_ROCR, environment.get(_ROCR)), (name, hip)):
        if said is None or not left:
            continue
        positions = VisibleList.read(variable, said).positions([gpu.uuid for gpu in left], notes)
        chosen = tuple(left[i] for i in sorted(positions))
        _tell_hidden(variable, said, left, chosen, notes)
        left = chosen
    return left


def _numbering(
    cards: Sequence[Card], environment: Mapping[str, str], listed: VisibleList, notes: Notes
) -> list[int]:
    """Positions in `cards` by CUDA's numbers: PCI bus order if asked, else the fastest card first.

    How CUDA measures speed is not documented; cores times clock is taken. Equal cards keep the
    order of the bus.
    """
    places = list(range(len(cards)))
    if environment.get(_ORDER) == "PCI_BUS_ID" or len({card.gpu.name for card in cards}) < 2:
        return places
    speeds = [card.gpu.cores * card.gpu.clock_mhz for card in cards]
    order = sorted(places, key=lambda i: -speeds[i]) if all(speeds) else places
    if listed.has_numbers:
        names = ", ".join(f"{n} {cards[i].gpu.name}" for n, i in enumerate(order))
        notes.add(
            f"{_CUDA} counts cards fastest first, taken to be {names}; "
            f"set {_ORDER}=PCI_BUS_ID to count them as nvidia-smi does"
        )
    return order


def _usable_together(cards: Sequence[Card], notes: Notes) -> tuple[Gpu, ...]:
    """Whole cards; a process gets one MIG instance, and only where there is no whole card."""
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


def _named_instance(cards: Sequence[Card], listed: VisibleList, notes: Notes) -> tuple[Gpu, ...]:
    """The first instance of the list: CUDA shows a process no more than one."""
    word = listed.words[0].lower()
    fits = {
        part.uuid: part
        for card in cards
        for part, legacy in zip(card.instances, card.legacy, strict=True)
        if part.uuid.lower().startswith(word) or legacy.lower().startswith(word)
    }
    if len(word) <= len("MIG-") or len(fits) != 1:
        why = f"is the begin of {len(fits)} instances' names, not of one"
        listed.tell_end(listed.words[0], why, notes)
        return ()
    if len(listed.words) > 1:
        notes.add(f"{_CUDA} names {len(listed.words)} devices: a process gets the first instance")
    return tuple(fits.values())


def _tell_hidden(
    variable: str, said: str, gpus: Sequence[Gpu], chosen: Sequence[Gpu], notes: Notes
) -> None:
    # A chosen MIG instance has the number of its card.
    shown = {gpu.index for gpu in chosen}
    hidden = [_title(gpu) for gpu in gpus if gpu.index not in shown]
    if hidden:
        notes.add(f"{variable}={plain(said, 60)} hides {'; '.join(hidden)}")


def _title(gpu: Gpu) -> str:
    return f"GPU {gpu.index}: {gpu.name} ({gpu.uuid})"
