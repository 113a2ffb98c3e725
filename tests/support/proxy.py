"""A TCP proxy in front of a server on this machine: it passes on, delays, swallows or cuts."""

import asyncio
import contextlib
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable

_CHUNK = 65536


class Proxy:
    """Forwards connections from a free loopback port to `target_port`, with faults on demand.

    A fault applies to open and to new connections, from the return of its method until `heal`.

    Attributes:
        port: where it listens.
        connections: how many it has accepted so far.
    """

    def __init__(self, target_port: int) -> None:
        self.port = 0
        self.connections = 0
        self._target_port = target_port
        self._delay_seconds = 0.0
        self._swallows_requests = False
        self._swallows_answers = False
        self._refuses = False
        self._turns: list[bytes] = []
        self._writers: set[StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(5)

    @property
    def url(self) -> str:
        """The address of database 0 of a Redis behind it."""
        return f"redis://127.0.0.1:{self.port}/0"

    def turns(self, word: str) -> int:
        """How many round trips so far began with a command of that name, whatever came in the same breath."""
        return sum(word.encode() in turn.split(b"\r\n")[2:3] for turn in self._turns)

    def delay(self, seconds: float) -> None:
        """Pass everything on, each way, so much later."""
        self._delay_seconds = seconds

    def black_hole(self) -> None:
        """Keep and accept connections, and swallow whatever is sent, both ways."""
        self._swallows_requests = self._swallows_answers = True

    def drop_answers(self) -> None:
        """Pass requests on, and swallow what the server answers."""
        self._swallows_answers = True

    def cut(self) -> None:
        """Close every connection, and new ones at once."""
        self._refuses = True
        self.drop_connections()

    def lead_to(self, port: int) -> None:
        """Forward new connections to another server; the open ones stay where they are."""
        self._target_port = port

    def drop_connections(self) -> None:
        """Close every connection, once; new ones are served."""
        asyncio.run_coroutine_threadsafe(self._drop_all(), self._loop).result(5)

    def heal(self) -> None:
        """No fault any more. What was swallowed stays lost."""
        self._delay_seconds = 0.0
        self._swallows_requests = self._swallows_answers = self._refuses = False

    def close(self) -> None:
        """Close every connection and end."""
        asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _drop_all(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _listen(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _shut(self) -> None:
        self._server.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.connections += 1
        if self._refuses:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.transport.abort()
            return
        pair = {writer, far_writer}
        is_answered = True

        def asks(chunk: bytes) -> bool:
            nonlocal is_answered
            if is_answered:
                self._turns.append(chunk[:64])
                is_answered = False
            return not self._swallows_requests

        def answers(_chunk: bytes) -> bool:
            nonlocal is_answered
            is_answered = True
            return not self._swallows_answers

        pumps = {
            asyncio.ensure_future(self._pump(reader, far_writer, asks)),
            asyncio.ensure_future(self._pump(far_reader, writer, answers)),
        }
        self._writers |= pair
        self._pumps |= pumps
        try:
            # One direction over means both are: nothing here half-closes.
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._writers -= pair
            self._pumps -= pumps
            for end in pair:
                end.transport.abort()
            for pump in pumps:
                pump.cancel()

    async def _pump(self, source: StreamReader, sink: StreamWriter, passes: Callable[[bytes], bool]) -> None:
        with contextlib.suppress(OSError):
            while chunk := await source.read(_CHUNK):
                await asyncio.sleep(self._delay_seconds)
                if passes(chunk):
                    sink.write(chunk)
                    await sink.drain()
