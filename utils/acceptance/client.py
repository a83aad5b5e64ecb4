"""The load: an asynchronous, streaming OpenAI client with fixed concurrency and deadlines."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from utils.acceptance import stream
from utils.acceptance.engines import Engine
from utils.acceptance.load import Load, Prompt, api_headers, discreet, payload_digest, planned
from utils.acceptance.stream import Answer, StreamError

if TYPE_CHECKING:
    import aiohttp

__all__ = ["Answer", "Load", "Pace", "Prompt", "api_headers", "payload_digest", "planned", "run"]

TRIES = 3
RETRY_STATUSES = {429, 502, 503, 504}
TICK_S = 0.05


@dataclass
class Pace:
    """Whether the client kept up: only then is what it saw the server's doing.

    start_lag_s: longest time from a free slot to the next request. loop_lag_s: 99th percentile of
    how late the event loop ran. cpu_share: of one core, while the load ran.
    """

    concurrency: int
    reached_concurrency: int = 0
    start_lag_s: float = 0.0
    loop_lag_s: float = 0.0
    cpu_share: float = 0.0
    duration_s: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def run(
    load: Load,
    prompts: Sequence[Prompt],
    engine: Engine,
    pace: Pace | None = None,
    ended: Callable[[], None] | None = None,
) -> list[Answer]:
    """Send every prompt, `concurrency` at a time; answers in the order of planned().

    pace is filled in with how well the client kept up. ended is called after each request.
    """
    with _calm_collector():
        one = _Run(load, engine, pace or Pace(load.concurrency), ended)
        return asyncio.run(one.all(prompts))


@contextlib.contextmanager
def _calm_collector() -> Iterator[None]:
    """Collect garbage seldom: a pass over 1,024 streams is latency of every one of them."""
    usual = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(100_000, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()


@dataclass(eq=False)
class _Flight:
    """One request under way. heard: when its last byte came."""

    heard: float
    task: asyncio.Task[None] | None = None
    stalled: bool = False


@dataclass
class _Run:
    load: Load
    engine: Engine
    pace: Pace
    ended: Callable[[], None] | None = None
    began: float = field(default_factory=time.perf_counter)
    flights: set[_Flight] = field(default_factory=set)
    undecoded: deque[tuple[stream.Events, Answer]] = field(default_factory=deque)

    async def all(self, prompts: Sequence[Prompt]) -> list[Answer]:
        import aiohttp

        answers = [[Answer(name) for name in prompt.ids()] for prompt in prompts]
        waiting = iter(list(zip(prompts, answers, strict=True)))
        watch = asyncio.ensure_future(self._watch())
        cpu, self.began = time.process_time(), time.perf_counter()
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=self.load.request_deadline_s),
            headers=api_headers(),
            trust_env=False,
            read_bufsize=2**20,
        ) as session:
            slots = [
                asyncio.ensure_future(self._slot(session, waiting))
                for _ in range(min(self.load.concurrency, len(prompts)))
            ]
            if slots:
                await self._until_done(slots)
        self.pace.duration_s = time.perf_counter() - self.began
        watch.cancel()
        self._decode_all()
        self.pace.cpu_share = (time.process_time() - cpu) / max(self.pace.duration_s, 1e-9)
        flat = [answer for turns in answers for answer in turns]
        for answer in flat:
            if not answer.ok and answer.error is None:
                limit = self.load.total_deadline_s
                answer.error = f"not finished within {limit:g} s for the whole load"
        return flat

    async def _until_done(self, slots: Sequence[asyncio.Task[None]]) -> None:
        _, late = await asyncio.wait(slots, timeout=self.load.total_deadline_s)
        for slot in late:
            slot.cancel()
        await asyncio.gather(*slots, return_exceptions=bool(late))

    async def _slot(
        self, session: aiohttp.ClientSession, waiting: Iterator[tuple[Prompt, list[Answer]]]
    ) -> None:
        for prompt, answers in waiting:
            messages = list(prompt.messages)
            for answer, user in zip(answers, (*prompt.later, None), strict=True):
                await self._fly(session, messages, answer)
                if user is None:
                    break
                self._decode_all()  # the next turn quotes this answer
                if not answer.ok:
                    for skipped in answers[answers.index(answer) + 1 :]:
                        skipped.error = f"not sent: {answer.id} failed"
                    break
                messages += [
                    {"role": "assistant", "content": answer.text},
                    {"role": "user", "content": user},
                ]

    async def _fly(
        self, session: aiohttp.ClientSession, messages: Sequence[Mapping[str, str]], answer: Answer
    ) -> None:
        """One request in a task of its own, so that the watchdog can end it alone."""
        due = time.perf_counter()
        body = self.load.body(messages, self.engine)
        flight = _Flight(due)
        flight.task = asyncio.ensure_future(self._ask(session, body, answer, flight, due))
        self.flights.add(flight)
        self.pace.reached_concurrency = max(self.pace.reached_concurrency, len(self.flights))
        try:
            await flight.task
        except asyncio.CancelledError:
            if not flight.stalled:
                raise
            answer.error = f"no byte for {self.load.stall_s:g} s"
        finally:
            self.flights.discard(flight)
            if self.ended:
                self.ended()

    async def _ask(
        self,
        session: aiohttp.ClientSession,
        body: Mapping[str, Any],
        answer: Answer,
        flight: _Flight,
        due: float,
    ) -> None:
        """One request; tried again only while no byte of an answer has arrived."""
        import aiohttp

        while True:
            answer.tries += 1
            sent = flight.heard = time.perf_counter()
            if answer.tries == 1:
                answer.started_s = sent - self.began
                self.pace.start_lag_s = max(self.pace.start_lag_s, sent - due)
            answer.status, retry = None, False
            try:
                async with session.post(self.load.url, json=body, allow_redirects=False) as reply:
                    answer.status = reply.status
                    if reply.status == 200:
                        await self._read(reply, answer, flight, sent)
                        return
                    detail = (await reply.text(errors="replace"))[:200]
                    answer.error = discreet(f"HTTP {reply.status}: {detail}")
                    retry = reply.status in RETRY_STATUSES
            except asyncio.TimeoutError:
                answer.error = f"no end within {self.load.request_deadline_s:g} s"
            except aiohttp.ClientConnectorError as error:
                answer.error, retry = f"no connection: {error}", True
            except (aiohttp.ClientError, OSError) as error:
                answer.error = discreet(f"{type(error).__name__}: {error}")
                # An idle connection that the server closed just now.
                retry = answer.status is None and isinstance(error, aiohttp.ServerDisconnectedError)
            if not retry or answer.tries >= TRIES:
                return
            await asyncio.sleep(0.5 * answer.tries)

    async def _read(
        self, reply: aiohttp.ClientResponse, answer: Answer, flight: _Flight, sent: float
    ) -> None:
        events, now = stream.Events(), time.perf_counter
        async for data in reply.content.iter_any():
            flight.heard = now()
            events.feed(data, flight.heard - sent)
        # One a turn of the loop, after what has arrived: decoding them at once would delay the
        # requests that are due now.
        if not self.undecoded:
            asyncio.get_running_loop().call_soon(self._decode_in_turn)
        self.undecoded.append((events, answer))

    def _decode_in_turn(self) -> None:
        self._decode_one()
        if self.undecoded:
            asyncio.get_running_loop().call_soon(self._decode_in_turn)

    def _decode_one(self) -> None:
        if self.undecoded:
            events, answer = self.undecoded.popleft()
            try:
                stream.read(events, answer, self.engine)
            except StreamError as error:
                answer.error = discreet(f"StreamError: {error}")

    def _decode_all(self) -> None:
        while self.undecoded:
            self._decode_one()

    async def _watch(self) -> None:
        """End silent requests, and measure how late the event loop is."""
        lags: list[float] = []
        try:
            while True:
                due = time.perf_counter() + TICK_S
                await asyncio.sleep(TICK_S)
                now = time.perf_counter()
                lags.append(now - due)
                for flight in list(self.flights):
                    if flight.task and now - flight.heard > self.load.stall_s:
                        flight.stalled = True
                        flight.task.cancel()
        finally:
            if lags:
                self.pace.loop_lag_s = max(sorted(lags)[-(-99 * len(lags) // 100) - 1], 0.0)
