"""An engine without a model: speaks the line protocol and does what each prompt tells it.

A prompt is bytes as token ids. If its text holds a JSON object, that is its script:
`say` (the reply), `hold` (wait for a release after so many tokens), `hold_read` (wait for one while
the prompt is read), `refuse` (ERR at once), `fail` (ERR after so many tokens, with the text `why`),
`die` (ERR and exit 3 after so many tokens), `unseat` (BADM 0 after a whole DONE), `mute` (never say
anything again after so many tokens), `deaf` (ignore BSTOP), `reuse` (so many tokens are held
already).
Without a script the reply is `echo:` and the last 40 bytes of the prompt.

The engine tells a control socket every command it reads, and reads releases from it, so that tests
wait for events and never for time. `STRATA_TEST_ENGINE` is a JSON object of settings:
`control` (the port), `slots`, `context`, `hold_ready` (READY only when told), `broken` (no start),
`facts` (more of INFO), `stays` (a closed stdin does not end it), `chatter` (a line of its log).
"""

import contextlib
import json
import os
import queue
import socket
import sys
import threading
from dataclasses import dataclass, field

from engine.messages import (
    Admitted,
    BatchGen,
    BatchStop,
    BatchYield,
    Command,
    Done,
    Event,
    Failed,
    Info,
    Keys,
    LogProbs,
    PromptRead,
    Quit,
    Ready,
    Resume,
    Reused,
    SlotDone,
    SlotToken,
    Token,
    Yielded,
)
from engine.protocol import ProtocolError, format_message, parse_command

EOS = 256


@dataclass
class Job:
    """One request in a slot."""

    order: BatchGen
    script: dict
    reply: list[int]
    out: int = 0
    admitted: bool = False
    read: int = 0
    released: int = 0
    stopped: bool = False

    def waits(self, at: str) -> bool:
        count = self.out if at == "hold" else 0
        limit = self.script.get(at)
        return limit is not None and count >= limit and not self.released


@dataclass
class Engine:
    settings: dict
    control: socket.socket
    jobs: dict[int, Job] = field(default_factory=dict)
    inbox: queue.Queue = field(default_factory=queue.Queue)
    muted: bool = False

    def say(self, event: Event) -> None:
        if not self.muted:
            print(format_message(event), flush=True)

    def tell(self, line: str) -> None:
        self.control.sendall(line.encode() + b"\n")

    def run(self) -> int:
        if self.settings.get("broken"):
            print("cannot open the model: it is only a test", file=sys.stderr, flush=True)
            return 4
        print(self.settings.get("chatter", ""), file=sys.stderr, flush=True)
        threading.Thread(target=self.read_control, daemon=True).start()
        if self.settings.get("hold_ready"):
            while self.inbox.get() != "ready":
                pass
        slots = self.settings.get("slots", 4)
        self.say(Info({"engine": "scripted", "batch_slots": slots, "logprobs": 5}))
        self.say(Info(self.settings.get("facts", {})))
        print("a stray line of a library", flush=True)
        self.say(Ready(self.settings.get("context", 4096)))
        threading.Thread(target=self.read_stdin, daemon=True).start()
        while True:
            moving = any(self.can_move(job) for job in self.jobs.values())
            with contextlib.suppress(queue.Empty):
                item = self.inbox.get(block=not moving)
                if item is None or isinstance(item, Quit):
                    self.tell("end")
                    return 0
                self.take(item)
                continue
            for job in list(self.jobs.values()):
                self.move(job)

    def read_stdin(self) -> None:
        for line in sys.stdin:
            try:
                self.inbox.put(parse_command(line))
            except ProtocolError as error:
                self.say(Failed(error.message, error.rid))
        if not self.settings.get("stays"):
            self.inbox.put(None)

    def read_control(self) -> None:
        for line in self.control.makefile():
            self.inbox.put(line.strip())

    def take(self, item: Command | str) -> None:
        match item:
            case "release":
                for job in self.jobs.values():
                    job.released = True
            case str() if item.startswith("mark"):
                self.tell(item)
            case BatchStop():
                self.tell(f"bstop {item.slot} {item.rid}")
                job = self.jobs.get(item.slot)
                if job and job.order.rid == item.rid and not job.script.get("deaf"):
                    job.stopped = True
            case BatchYield():
                self.tell(f"byield {item.slot} {item.rid}")
                job = self.jobs.get(item.slot)
                if job and job.order.rid == item.rid and not job.admitted:
                    self.say(Yielded(item.slot, job.read, item.rid))
                    job.stopped = True
                    self.move(job)
            case BatchGen():
                self.start(item)

    def start(self, order: BatchGen) -> None:
        text = bytes(i for i in order.ids if i < 256).decode("utf-8", "replace")
        script = {}
        with contextlib.suppress(ValueError):
            script = json.JSONDecoder().raw_decode(text[max(0, text.find("{")) :])[0]
        said = script.get("say", f"echo:{text[-40:]}")
        reply = said if isinstance(said, list) else list(said.encode())
        self.tell(f"bgen {order.slot} {order.rid} {order.max_new} {keys_text(order.keys)} {text}")
        busy = order.slot in self.jobs or order.slot >= self.settings.get("slots", 4)
        refuse = script.get("refuse") or ("the slot is busy" if busy else None)
        if refuse:
            self.say(Failed(refuse, order.rid))
            return
        job = Job(order, script, [*reply, EOS])
        self.jobs[order.slot] = job
        job.read = min(script.get("reuse", 0), len(order.ids) - 1)
        self.say(Resume(job.read, order.rid))

    def can_move(self, job: Job) -> bool:
        if job.stopped:
            return True
        return not (job.waits("hold_read") if not job.admitted else job.waits("hold"))

    def move(self, job: Job) -> None:
        if not self.can_move(job):
            return
        order, total = job.order, len(job.order.ids)
        if not job.admitted and job.stopped:
            self.say(Done(0, total, 1.0, 0.0, "cancel", rid=order.rid))
            self.end(job, admitted=False)
        elif not job.admitted and job.read < total:
            job.read = min(total, job.read + 64)
            self.say(PromptRead(job.read, total, 1.0, 64.0, order.rid))
        else:
            self.token(job)

    def token(self, job: Job) -> None:
        order = job.order
        if job.out == job.script.get("die"):
            self.say(Failed("verify batch: it is only a test"))
            print("last words of the engine", file=sys.stderr, flush=True)
            sys.stdout.flush()
            os._exit(3)
        if job.out == job.script.get("fail"):
            self.say(Failed(job.script.get("why", "the window failed"), order.rid))
            del self.jobs[order.slot]
            return
        self.muted = self.muted or job.out == job.script.get("mute")
        token = job.reply[job.out]
        job.out += 1
        if order.keys.logprobs is not None:
            others = tuple((97 + i, -1.0 - i) for i in range(order.keys.logprobs))
            self.say(LogProbs(token, -0.5, others, order.rid))
        if not job.admitted:
            self.admit(job, token)
            return
        self.say(SlotToken(order.slot, token, order.rid))
        if token == EOS or job.out >= order.max_new or job.stopped:
            cause = "stop" if token == EOS else "cancel" if job.stopped else "length"
            self.say(SlotDone(order.slot, job.out, cause, 10.0, 3, 4, order.rid))
            del self.jobs[order.slot]

    def admit(self, job: Job, token: int) -> None:
        order, job.admitted = job.order, True
        reused = min(job.script.get("reuse", 0), len(order.ids) - 1)
        self.say(Reused(reused, order.rid))
        self.say(Token(token, order.rid))
        finish = "stop" if token == EOS else "length"
        self.say(Done(1, len(order.ids), 2.0, 0.0, finish, reused=reused, rid=order.rid))
        goes_on = finish == "length" and order.max_new > 1 and not job.script.get("unseat")
        self.end(job, admitted=goes_on)

    def end(self, job: Job, *, admitted: bool) -> None:
        self.say(Admitted(job.order.slot, admitted, job.order.rid))
        if not admitted:
            del self.jobs[job.order.slot]


def keys_text(keys: Keys) -> str:
    words = [
        f"{k}={getattr(keys, k)!r}" for k in keys.__struct_fields__ if getattr(keys, k) is not None
    ]
    return ",".join(words) or "-"


def main() -> int:
    settings = json.loads(os.environ["STRATA_TEST_ENGINE"])
    control = socket.create_connection(("127.0.0.1", settings["control"]))
    control.sendall(f"start {os.getpid()}\n".encode())
    return Engine(settings, control).run()


if __name__ == "__main__":
    sys.exit(main())
