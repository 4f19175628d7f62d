"""What one client may cost, and all together: bounds of the data listener, each a setting with a default.

Beside the request path. Times are long where only patience is at stake and short where a socket is held for nothing; no
bound is on a running answer's whole time. Must not know which request it bounds.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes, counts and seconds, all above 0.

    Attributes:
        head_bytes: a request head with its end.
        head_lines: header lines of a head.
        head_seconds: from a head's first byte to its end (slow loris).
        first_request: from a connection's start to its first whole head; longer than common load balancers keep theirs
            (60 s, 600 s), or they would send on a closing connection.
        idle: between an answer's end and the next head's first byte; as long for the same reason.
        body_idle: without a byte of a body that is being read; see body_deadline.
        body_rate: bytes a second of a body, on average over body_idle. Apache's own default
            (https://httpd.apache.org/docs/2.4/mod/mod_reqtimeout.html, MinRate=500), Kestrel has 240.
        connections: open at once; beyond it one that is idle is closed for a new one, or else the new one answered 503.
        pipelined: bytes behind a running request; beyond it the connection closes after the answer.
        body_memory: bodies of all requests that are read or may still be sent again; beyond it a request is refused.
        lingering: of reading on after a refusal that didn't wait for the body, so that the client gets to see it.
    """

    head_bytes: int = 64 * 1024
    head_lines: int = 100
    head_seconds: float = 20.0
    first_request: float = 620.0
    idle: float = 620.0
    body_idle: float = 60.0
    body_rate: int = 500
    connections: int = 20_000
    pipelined: int = 64 * 1024
    body_memory: int = 2**30
    lingering: float = 5.0

    def body_deadline(self, deadline: float, now: float, came: int) -> float:
        """When a body's time is over of which ``came`` bytes have come now; ``deadline``: as it was before.

        Time uses up a patience of body_idle, ``body_rate`` bytes give a second of it back. It never grows beyond
        body_idle, unlike Apache's and Kestrel's: who sent megabytes at once could then hold them for hours. Nor is it
        ever more than an eighth of that behind: the time of a router that was held up is nobody's fault.
        """
        behind = max(deadline, now - self.body_idle / 8)
        return min(now + self.body_idle, behind + came / self.body_rate)
