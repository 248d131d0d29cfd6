"""The line protocol between the server and the engine process: typed messages, parsed and printed.

One message is one line of UTF-8 ended by a newline; a carriage return before it is dropped. Words
are separated by one space. Commands go to the engine's stdin, events come from its stdout, and
stderr is a log. Floats are printed with `repr`, so they arrive bit for bit. **The engine flushes
every line.** A closed stdin ends the engine when its queue is empty, as `QUIT` does at once.

**rid.** A command may end in ` rid=ID` (1 to 64 of `A-Z a-z 0-9 . _ -`). Then *every* line about
that request ends in the same ` rid=ID`. A request without one is answered by lines without one.
The server always gives one, so lines of several admissions may be mixed in any way.

**Start.** Any number of `INFO key=value ...`, then `READY <max_context> stop`. Keys that the server
reads: `batch_slots` (seats that really run), `context`, `engine` (version), `slot_cache`,
`logprobs` (most alternatives a token can be reported with; absent: none), `grammars` (1: answers
can be held to one). Others go to /v1/status.

An `INFO` may come later, too, with counts since the start: `expert_hits` and `expert_fetches`, the
routed experts that windows found in the card's memory and that came over the wire.

**One request in a slot** (all lines carry its rid; S is the slot; k are `key=value` words):

    > BGEN S max_new [k ...] id,id,...
    < RESUME n                          n leading tokens that the slot (or a checkpoint) holds
    < PP read_to total ms tok_per_s     once a prompt chunk, also after the last one
    < REUSED n                          the prompt is read; n tokens of it were not computed
    < T id                              the first token (an end token is printed too)
    < DONE 1 prompt_tokens prompt_ms ms length|stop ...     the admission is over
    < BADM S 1                          1: it goes on in the slot.  0: it ended with this DONE
    < BT S id                           one a token, an end token too
    < BDONE S generated stop|length|cancel ms accepted offered    the slot is free again

* `generated` of BDONE counts the token of T; `ms` is the time since DONE; `accepted` and `offered`
  count draft tokens.
* Ends with the admission: first token is an end token (`DONE 1 .. stop`, `BADM S 0`), or max_new is
  1 (`DONE 1 .. length`, `BADM S 0`). No BDONE follows a `BADM S 0`.
* `BSTOP S [rid=ID]` ends slot S: while its prompt waits or is read, by `DONE 0 .. cancel` and
  `BADM S 0`; while it decodes, by `BDONE S n cancel ..` at its next window. With a rid it ends that
  request only; if it is over already the line is dropped silently. The slot keeps what it holds.
* Refusals before anything is read (bad ids, no room in the context, slot out of range or busy) are
  one `ERR why rid=ID`; **nothing follows for that request** and its slot is as free as before. The
  same for a request that fails later, alone: ERR ends it and frees its slot. An ERR without a rid
  answers a line whose rid could not be read, or is the last word of an engine about to exit.
* `BYIELD S`: the prompt being read for S gives way at its next chunk: `YIELDED S tokens`,
  `DONE 0 .. cancel`, `BADM S 0`; the same BGEN sent again goes on from there.

**A request without a slot.** `GEN max_new [k ...] ids` takes a seat by the rule longest prefix,
empty, least recently used (`ERR` when none is free): `RESUME, PP.., REUSED, T.., DONE`, where T is
printed for every token and DONE counts them all. `STOP` ends the GEN that runs, and every prompt
being read; it is answered by that request's `DONE .. cancel` (or, read for a slot, as BSTOP is).

**Optional lines**, each directly before the T or BT that it is about:

    < LP id logprob other:logprob,...   key `logprobs=N`: the token's own natural log-probability
                                        (before temperature, penalties and filters), N others
    < RH hex                            key `hashes=1`: a hash of the row's logits

The key `logit_bias` is `id:value,id:value`.

The fields of a line only ever grow at its end; a reader ignores fields that it does not know.
Unknown `key=value` words of a request are skipped; a known key with a bad value is an ERR.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

import msgspec
from msgspec import Struct

from engine.errors import RequestError
from engine.messages import (
    Admitted,
    BatchGen,
    BatchStop,
    BatchYield,
    Command,
    Count,
    Done,
    Event,
    Failed,
    Gen,
    Info,
    Keys,
    LogProbs,
    PromptRead,
    Quit,
    Ready,
    Resume,
    Reused,
    RowHash,
    SlotDone,
    SlotToken,
    Stop,
    Token,
    Yielded,
)

Field: TypeAlias = str | int | float

_RID = re.compile(r"(?:^| )rid=([A-Za-z0-9._-]{1,64})$")
_IDS = re.compile(r"[0-9]{1,9}(?:,[0-9]{1,9})*")
EXPECTED = "expected: GEN, BGEN, STOP, BSTOP, BYIELD or QUIT"


class ProtocolError(RequestError):
    """A line that cannot be read. `rid` names its request where that much is legible."""

    def __init__(self, message: str, rid: str = "") -> None:
        super().__init__(message)
        self.rid = rid


EVENTS: dict[str, type[Struct]] = {
    "READY": Ready,
    "RESUME": Resume,
    "PP": PromptRead,
    "REUSED": Reused,
    "T": Token,
    "YIELDED": Yielded,
    "DONE": Done,
    "BADM": Admitted,
    "BT": SlotToken,
    "BDONE": SlotDone,
    "LP": LogProbs,
    "RH": RowHash,
}
COMMANDS: dict[str, type[Struct]] = {
    "STOP": Stop,
    "BSTOP": BatchStop,
    "BYIELD": BatchYield,
    "QUIT": Quit,
}
_WORDS: dict[type[Struct], str] = {cls: word for word, cls in (EVENTS | COMMANDS).items()}


def parse_command(line: str) -> Command:
    """The command in `line`. Raises `ProtocolError`, whose message is the text of the ERR line."""
    body, rid = split_rid(line)
    word, _, rest = body.partition(" ")
    if word in ("GEN", "BGEN"):
        return _parse_generate(word, rest.split(" "), rid)
    if word not in COMMANDS:
        raise ProtocolError(f"{EXPECTED}, not {word[:40]!r}", rid)
    return _fill(COMMANDS[word], word, rest.split(), rid)  # type: ignore[return-value]


def parse_event(line: str) -> Event:
    """The event in `line`. Raises `ProtocolError`."""
    body, rid = split_rid(line)
    word, _, rest = body.partition(" ")
    if word == "ERR":
        return Failed(rest, rid)
    if word == "INFO":
        return Info(dict(_info_pair(pair) for pair in rest.split()))
    if word not in EVENTS:
        raise ProtocolError(f"not an event of the engine: {line[:80]!r}", rid)
    return _fill(EVENTS[word], word, rest.split(), rid)  # type: ignore[return-value]


def format_message(message: Command | Event) -> str:
    """The line of `message`, without its newline."""
    match message:
        case Failed():
            words = ["ERR", " ".join(message.message.split())]
        case Info():
            words = [
                "INFO",
                *(f"{k}={'_'.join(str(v).split())}" for k, v in message.values.items()),
            ]
        case Ready():
            words = ["READY", str(message.max_context), "stop"]
        case Gen() | BatchGen():
            seat = ["BGEN", str(message.slot)] if isinstance(message, BatchGen) else ["GEN"]
            ids = ",".join(map(str, message.ids))
            words = [*seat, str(message.max_new), *_key_words(message.keys), ids]
        case _:
            names = [name for name in message.__struct_fields__ if name != "rid"]
            fields = [_word(getattr(message, name)) for name in names]
            words = [_WORDS[type(message)], *(text for text in fields if text)]
    rid = getattr(message, "rid", "")
    return " ".join([*words, f"rid={rid}"] if rid else words)


def split_rid(line: str) -> tuple[str, str]:
    """`line` without its end, and the rid that it ends in (empty: none)."""
    line = line.rstrip("\r\n")
    found = _RID.search(line)
    return (line[: found.start()], found[1]) if found else (line, "")


def _parse_generate(word: str, words: Sequence[str], rid: str) -> Gen | BatchGen:
    head = 2 if word == "BGEN" else 1
    if len(words) < head + 1 or not _IDS.fullmatch(words[-1]):
        shape = "BGEN slot max_new" if word == "BGEN" else "GEN max_new"
        raise ProtocolError(f"{word}: expected: {shape} [key=value ...] id,id,...", rid)
    pairs = [text.partition("=") for text in words[head:-1]]
    stray = [key for key, sign, _ in pairs if not sign]
    if stray:
        raise ProtocolError(f"{word}: {stray[0][:40]!r} is not key=value", rid)
    given: dict[str, object] = {key: value for key, _, value in pairs}
    if "logit_bias" in given:
        given["logit_bias"] = [one.split(":") for one in str(given["logit_bias"]).split(",")]
    ids = tuple(map(int, words[-1].split(",")))
    try:
        numbers = [msgspec.convert(text, Count, strict=False) for text in words[:head]]
        keys = msgspec.convert(given, Keys, strict=False)
    except msgspec.ValidationError as error:
        raise ProtocolError(f"{word}: {error}", rid) from None
    if numbers[-1] < 1:
        raise ProtocolError(f"{word}: max_new is {numbers[-1]}, at least 1 is needed", rid)
    if word == "BGEN":
        return BatchGen(numbers[0], numbers[1], ids, keys, rid)
    return Gen(numbers[0], ids, keys, rid)


def _key_words(keys: Keys) -> list[str]:
    given = ((name, getattr(keys, name)) for name in keys.__struct_fields__)
    return [f"{name}={_word(value)}" for name, value in given if value is not None]


def _fill(kind: type[Struct], word: str, words: Sequence[str], rid: str) -> Struct:
    """A message from its words in the order of its fields; words beyond them are ignored."""
    names = [name for name in kind.__struct_fields__ if name != "rid"]
    given: dict[str, object] = dict(zip(names, words, strict=False))
    if "rid" in kind.__struct_fields__:
        given["rid"] = rid
    try:
        if kind is LogProbs and "others" in given:
            given["others"] = [pair.split(":") for pair in str(given["others"]).split(",")]
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ProtocolError(f"{word}: {error}", rid) from None


def _info_pair(text: str) -> tuple[str, int | str]:
    key, _, value = text.partition("=")
    return key, int(value) if re.fullmatch(r"-?[0-9]{1,18}", value) else value


def _word(value: Field | Sequence[tuple[int, float]]) -> str:
    match value:
        case bool():
            return "1" if value else "0"
        case float():
            return repr(value)
        case int() | str():
            return str(value)
    return ",".join(f"{token}:{logprob!r}" for token, logprob in value)
