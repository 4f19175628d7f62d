"""What the supervisor tells its children, and how they notice that it is gone: one socket each, one message a packet.

Beside every path. Some messages bring a socket along. Must not wait: a child that doesn't read is told nothing more.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

# To workers and pages: end gently; end without the delay; end at once. To pages: all have ended.
DRAIN: Final = b"drain"
NOW: Final = b"now"
HURRY: Final = b"hurry"
END: Final = b"end"
# To a worker, with a socket: whoever serves the pages. To pages, with a socket: "worker NUMBER PID STARTS".
PAGES: Final = b"pages"
WORKER: Final = b"worker"
# From a child: it serves.
SERVING: Final = b"serving"
_MOST: Final = 256


def tell(control: socket.socket, message: bytes, given: socket.socket | None = None) -> None:
    """Send a message, perhaps with a socket; a child that can't be told isn't (it has ended, or hangs)."""
    try:
        if given is None:
            control.send(message)
        else:
            socket.send_fds(control, [message], [given.fileno()])
    except OSError:
        return


def listen(
    control: socket.socket, told: Callable[[bytes, socket.socket | None], None], alone: Callable[[], None]
) -> None:
    """Hear the supervisor in the running loop. alone: it is gone, however it ended."""
    loop = asyncio.get_running_loop()
    control.setblocking(False)

    def read() -> None:
        try:
            message, files, _, _ = socket.recv_fds(control, _MOST, 1)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            message, files = b"", []
        if not message:
            loop.remove_reader(control)
            alone()
            return
        told(message, socket.socket(fileno=files[0]) if files else None)

    loop.add_reader(control, read)
