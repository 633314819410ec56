"""Serve test protocols inside a network namespace of its own: `unshare -n python gateway_server.py NAME`.

Prints one line when all ports listen and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import random
import socket
import struct
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable

HTTP, ECHO, DIGEST, SOURCE, DEAF, ABRUPT, GREETER, FULL = range(8000, 8008)
CHUNK_SIZE = 1 << 16


def bring_loopback_up() -> None:
    get_flags, set_flags, up = 0x8913, 0x8914, 0x1
    with socket.socket() as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack("16xh14x", fcntl.ioctl(any_socket, get_flags, request))
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sh14x", b"lo", flags | up))


async def serve_http(reader: StreamReader, writer: StreamWriter) -> None:
    """Answer `GET /PATH` with "NAME /PATH"; /slow is answered after 0.5 s; keeps alive."""
    while head := await reader.readuntil(b"\r\n\r\n"):
        path = head.split()[1]
        if path == b"/slow":
            await asyncio.sleep(0.5)
        body = sys.argv[1].encode() + b" " + path
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()


async def serve_echo(reader: StreamReader, writer: StreamWriter) -> None:
    """Send back what comes, and a last word after the client's end."""
    while data := await reader.read(CHUNK_SIZE):
        writer.write(data)
        await writer.drain()
    writer.write(b"<end>")
    writer.write_eof()


async def serve_digest(reader: StreamReader, writer: StreamWriter) -> None:
    """Read to the end in chunks of odd sizes, then send the SHA-256 in hex."""
    digest, chance = hashlib.sha256(), random.Random(1)
    while data := await reader.read(chance.randrange(1, CHUNK_SIZE)):
        digest.update(data)
    writer.write(digest.hexdigest().encode())
    writer.write_eof()


async def serve_source(reader: StreamReader, writer: StreamWriter) -> None:
    """Read a number and a line end; send that many pseudo-random bytes in chunks of odd sizes; end."""
    size = int(await reader.readline())
    chance = random.Random(size)
    while size > 0:
        data = chance.randbytes(min(size, chance.randrange(1, CHUNK_SIZE)))
        size -= len(data)
        writer.write(data)
        await writer.drain()
    writer.write_eof()


async def serve_deaf(_: StreamReader, writer: StreamWriter) -> None:
    """Say "deaf", then neither read nor end."""
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(b"deaf\n")
    await asyncio.sleep(3600)


async def serve_abrupt(reader: StreamReader, writer: StreamWriter) -> None:
    """Answer the first line with half an answer, then reset."""
    await reader.readline()
    writer.write(b"half an ans")
    await writer.drain()
    await asyncio.sleep(0.1)
    raw = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def serve_greeter(reader: StreamReader, writer: StreamWriter) -> None:
    """Speak first: NAME and a line end; then wait for the client's end."""
    writer.write(sys.argv[1].encode() + b"\n")
    while await reader.read(CHUNK_SIZE):
        pass


def fill_backlog(port: int) -> list[socket.socket]:
    """Listen where nobody accepts and no further connection finds room."""
    listener = socket.create_server(("127.0.0.1", port), backlog=0)
    fillers = [socket.socket() for _ in range(3)]
    for filler in fillers:
        filler.setblocking(False)
        filler.connect_ex(("127.0.0.1", port))
    return [listener, *fillers]


Serve = Callable[[StreamReader, StreamWriter], Awaitable[None]]


def tolerant(serve: Serve) -> Serve:
    async def serve_one(reader: StreamReader, writer: StreamWriter) -> None:
        try:
            await serve(reader, writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    return serve_one


async def main() -> None:
    bring_loopback_up()
    services = {
        HTTP: serve_http,
        ECHO: serve_echo,
        DIGEST: serve_digest,
        SOURCE: serve_source,
        DEAF: serve_deaf,
        ABRUPT: serve_abrupt,
        GREETER: serve_greeter,
    }
    for port, serve in services.items():
        await asyncio.start_server(tolerant(serve), "127.0.0.1", port, backlog=4096)
    kept_open = fill_backlog(FULL)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    for each in kept_open:
        each.close()


if __name__ == "__main__":
    asyncio.run(main())
