"""Which requests a table's shed shares refuse: the same ones in every router of a front-end.

On the request path. The draw is a digest of key, priority and a ten-minute window with a salt of its own (not the
slots': else shedding would hit whole engines), so a conversation is not shed on every second turn, nor the same user
for hours. It is nested: whoever is shed at 10 % is shed at 20 % too.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Final

WINDOW_S: Final = 600.0
_SALT: Final = b"headrace.shed"
_TWO_64: Final = float(2**64)


def shed_draw(key: bytes | None, priority: str, wall_now: float, rng: Callable[[], float]) -> float:
    """A number from 0 to 1; the request is refused where it lies below its priority's share.

    Args:
        key: affinity key; without one every request draws for itself.
        priority: the priority's name.
        wall_now: seconds since the epoch, so that routers agree on the window.
        rng: a number from 0 to 1, for requests without a key.
    """
    if key is None:
        return rng()
    window = int(wall_now // WINDOW_S)
    digest = blake2b(digest_size=8, person=_SALT)
    for part in (b"%d" % window, priority.encode(), key):
        digest.update(b"%d;" % len(part))
        digest.update(part)
    return int.from_bytes(digest.digest(), "big") / _TWO_64
