"""One compiling process: `python -m minivt.backends.cpu.compile_worker`, started and fed by compile_pool.

It answers each request on stdin with an object file on stdout and leaves when stdin closes, so it cannot outlive its
parent by more than one kernel. Not for running by hand.
"""

import io
import json
import os
import select
import struct

from minivt.backends.cpu.host import HostTarget
from minivt.backends.cpu.jit import compile_object, compiler_version
from minivt.errors import CompileError

IDLE_SECONDS = 60.0  # then a worker gives its memory back; the pool starts another when there is work
_LENGTH = struct.Struct("<Q")


def write_frame(pipe: io.FileIO, data: bytes) -> None:
    """Send `data` with its length in front. Raises OSError when the other side is gone."""
    unsent = memoryview(_LENGTH.pack(len(data)) + data)
    while unsent:
        unsent = unsent[pipe.write(unsent):]


def read_frame(pipe: io.FileIO) -> bytes | None:
    """The next frame, or None when the other side is gone."""
    header = _read(pipe, _LENGTH.size)
    return None if header is None else _read(pipe, *_LENGTH.unpack(header))


def _read(pipe: io.FileIO, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        part = pipe.read(size - len(data))
        if not part:
            return None
        data += part
    return bytes(data)


def main() -> None:
    """Serve until stdin closes or nothing came for IDLE_SECONDS.

    A request is JSON {"target": fields of HostTarget, "ir": text}; a reply is b"o" + object file or b"e" + message.
    An empty frame comes first: it says that the worker is up.
    """
    requests, replies = io.FileIO(0), io.FileIO(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints must not land between replies
    compiler_version()  # loads LLVM
    _reply(replies, b"")
    while select.select([requests], [], [], IDLE_SECONDS)[0]:
        request = read_frame(requests)
        if request is None:
            return
        fields = json.loads(request)
        try:
            reply = b"o" + compile_object(fields["ir"], HostTarget(**fields["target"]))
        except CompileError as error:
            reply = b"e" + str(error).encode()
        _reply(replies, reply)


def _reply(pipe: io.FileIO, data: bytes) -> None:
    try:
        write_frame(pipe, data)
    except BrokenPipeError:  # the parent is gone
        os._exit(0)


if __name__ == "__main__":
    main()
