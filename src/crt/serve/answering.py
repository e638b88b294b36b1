"""The responses to one request while they are written, token by token, within a time limit."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crt.serve.faults import ApiError, too_slow
from crt.serve.metrics import Heard
from crt.serve.reading import Piece, Reader
from crt.serve.scheduler import Scheduler, Ticket

if TYPE_CHECKING:
    from crt.serve.slots import Said


@dataclass(frozen=True)
class Part:
    """What is new of one response; `finish` when it has ended."""

    number: int
    piece: Piece
    finish: str | None


@dataclass(frozen=True)
class Answering:
    """Whoever stops listening to `parts` frees the places."""

    scheduler: Scheduler
    ticket: Ticket
    readers: list[Reader]
    prompt_tokens: int
    time_limit: float
    heard: Heard

    async def parts(self) -> AsyncIterator[list[Part]]:
        """All that is new, each time there is something."""
        unfinished = set(range(len(self.readers)))
        alarm = self._alarm()
        try:
            while unfinished:
                new: dict[int, Part] = {}
                for number, said in await self._events():
                    if number in unfinished:
                        new[number] = joined(new.get(number), self._read(number, said))
                        unfinished -= {number} if new[number].finish else set()
                self.heard.first(time.monotonic() - self.ticket.started)
                yield list(new.values())
        finally:
            alarm.cancel()
            self.scheduler.cancel(self.ticket)
            self.heard.ended(self.usage())

    def usage(self) -> dict[str, Any]:
        """Tokens so far, in OpenAI's form; the token that ends a response counts."""
        spoken = sum(reader.tokens for reader in self.readers)
        thought = sum(reader.reasoning_tokens for reader in self.readers)
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": spoken,
            "total_tokens": self.prompt_tokens + spoken,
            "completion_tokens_details": {"reasoning_tokens": thought},
        }

    def _alarm(self) -> asyncio.TimerHandle:
        """Puts the end of the time limit among the events: one timer, not one for every token."""
        left = max(0.0, self.ticket.started + self.time_limit - time.monotonic())
        put = self.ticket.events.put_nowait
        return self.ticket.loop.call_later(left, put, too_slow(self.time_limit))

    async def _events(self) -> "list[tuple[int, Said]]":
        """At least one token, and every other that is there already."""
        queue = self.ticket.events
        event = await queue.get()
        found: list[tuple[int, Said]] = []
        while True:
            if isinstance(event, ApiError):
                raise event
            found.append(event)
            if queue.empty():
                return found
            event = queue.get_nowait()

    def _read(self, number: int, said: "Said") -> Part:
        reader = self.readers[number]
        piece = reader.feed(said.token, said.stop == "eos")
        if reader.stopped:
            self.scheduler.cancel(self.ticket, number)
            return Part(number, piece, "stop")
        if said.stop is None:
            return Part(number, piece, None)
        ended = Part(number, reader.close(), "length" if said.stop == "length" else "stop")
        return joined(Part(number, piece, None), ended)


def joined(before: Part | None, after: Part) -> Part:
    """Two pieces of one response as one."""
    if before is None:
        return after
    one, two = before.piece, after.piece
    both = Piece(one.reasoning + two.reasoning, one.content + two.content)
    return Part(after.number, both, after.finish)
