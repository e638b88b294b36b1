"""One thread per model that keeps its batch full: a bounded queue in, tokens out as they come."""

import asyncio
import atexit
import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING

from crt.serve.faults import ApiError, broken, busy

if TYPE_CHECKING:
    from crt.serve.slots import Ask, Said, SlotBatch

log = logging.getLogger("crt.serve")
PROMPT_TOKENS = 2048  # read between two tokens of the others, at most, so that streams don't stall
LONGEST_WAIT = 60


@dataclass
class Ticket:
    """A client's request: its responses, and the queue its tokens arrive in, by response."""

    loop: asyncio.AbstractEventLoop
    events: "asyncio.Queue[tuple[int, Said] | ApiError]"
    keys: list[int] = field(default_factory=list[int])
    left: int = 0  # responses that have not ended
    started: float = 0.0


class Scheduler:
    """Requests wait in a bounded queue, join the batch when a place is free, and may be cancelled.

    Everything but `_run` is called from the event loop's thread.
    """

    def __init__(self, batch: "SlotBatch", queue: int, name: str) -> None:
        self.batch, self.queue = batch, queue
        self._waiting: deque[Ask] = deque()
        self._gone: set[int] = set()
        self._tickets: dict[int, tuple[Ticket, int]] = {}  # key → ticket, number of the response
        self._keys = count()
        self._mean_seconds = 1.0
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"crt-{name}", daemon=True)
        self._thread.start()
        # A second Ctrl-C skips the server's own end, and torch aborts if a thread outlives Python.
        atexit.register(self.close)

    @property
    def waiting(self) -> int:
        """Responses in the queue."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Responses being written."""
        return len(self.batch.live)

    @property
    def alive(self) -> bool:
        """The thread works."""
        return self._thread.is_alive()

    def submit(self, asks: "Sequence[Ask]") -> Ticket:
        """All of them, or 429 with the time after which a place should be free."""
        ticket = Ticket(asyncio.get_running_loop(), asyncio.Queue(), left=len(asks))
        ticket.started = time.monotonic()
        with self._changed:
            if len(self._tickets) + len(asks) > self.batch.slots + self.queue:
                raise busy(self._retry_after())
            for number, ask in enumerate(asks):
                key = next(self._keys)
                ticket.keys.append(key)
                self._tickets[key] = (ticket, number)
                self._waiting.append(replace(ask, key=key))
            self._changed.notify()
        return ticket

    def cancel(self, ticket: Ticket, number: int | None = None) -> None:
        """The client is gone, or has enough of this response: its place is free at once."""
        with self._changed:
            keys = ticket.keys if number is None else [ticket.keys[number]]
            self._gone.update(key for key in keys if key in self._tickets)
            self._changed.notify()

    def close(self) -> None:
        """The thread ends after the token it is at."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout=60)
        atexit.unregister(self.close)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._closed or self._waiting or self._gone or self.batch.live):
                    self._changed.wait()
                if self._closed:
                    return
                self._forget()
                joining = self._joining()
            try:
                said = self.batch.admit(joining) if joining else []
                self._tell(said)
                self._tell(self.batch.step())
            except Exception:  # whatever it was, those who wait must hear of it
                log.exception("the model failed; its requests are answered with an error")
                self._fail()

    def _forget(self) -> None:
        """Takes those who are gone out of batch and queue."""
        if not self._gone:
            return
        self.batch.drop(self._gone)
        self._waiting = deque(ask for ask in self._waiting if ask.key not in self._gone)
        for key in self._gone:
            self._tickets.pop(key, None)
        self._gone.clear()

    def _joining(self) -> "list[Ask]":
        """Who joins now: as many as there are places and time to read their prompts."""
        chosen: list[Ask] = []
        widest = 0
        while self._waiting and len(chosen) < self.batch.free:
            widest = max(widest, len(self._waiting[0].prompt))
            if chosen and widest * (len(chosen) + 1) > PROMPT_TOKENS:
                break
            chosen.append(self._waiting.popleft())
        return chosen

    def _tell(self, said: "Sequence[Said]") -> None:
        """Hands the tokens of one step over to the event loop, all in one call."""
        if not said:
            return
        told: list[tuple[Ticket, int, Said]] = []
        with self._changed:
            for each in said:
                ticket, number = self._tickets[each.key]  # pyright: ignore[reportArgumentType]
                told.append((ticket, number, each))
                if each.stop:
                    del self._tickets[each.key]  # pyright: ignore[reportArgumentType]
                    ticket.left -= 1
                    self._measure(ticket)
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody listens
            told[0][0].loop.call_soon_threadsafe(_deliver, told)

    def _measure(self, ticket: Ticket) -> None:
        if ticket.left == 0:
            took = time.monotonic() - ticket.started
            self._mean_seconds += 0.1 * (took - self._mean_seconds)

    def _fail(self) -> None:
        with self._changed:
            lost = {id(ticket): ticket for ticket, _ in self._tickets.values()}
            self._tickets.clear()
            self._waiting.clear()
            self._gone.clear()
            self.batch.clear()
        for ticket in lost.values():
            with contextlib.suppress(RuntimeError):
                ticket.loop.call_soon_threadsafe(ticket.events.put_nowait, broken())

    def _retry_after(self) -> int:
        """Seconds until about a batch's worth of the queue is through."""
        batches = (len(self._waiting) + 1) / self.batch.slots
        return max(1, min(LONGEST_WAIT, math.ceil(batches * self._mean_seconds)))


def _deliver(told: "list[tuple[Ticket, int, Said]]") -> None:
    for ticket, number, said in told:
        ticket.events.put_nowait((number, said))
