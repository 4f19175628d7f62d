"""Clients by https with a key, until SIGTERM: prints how many requests were answered, and what went wrong.

python keyed_load.py URL CA-FILE KEY-FILE      (all read anew for each request)
"""

from __future__ import annotations

import json
import signal
import ssl
import sys
import urllib.request
from pathlib import Path


def once(url: str, ca: str, key: str) -> str:
    """The answer to one request on a connection of its own; else what went wrong."""
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        data=b'{"model":"m"}',
        headers={"Content-Type": "application/json", "x-api-key": key},
    )
    with urllib.request.urlopen(request, context=ssl.create_default_context(cafile=ca), timeout=30) as answer:
        text: str = answer.read().decode()
        return text


def main(url: str, ca: str, key_file: str) -> None:
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
    served, wrong, shown = 0, [], set()
    while not ended:
        try:
            shown.add(json.dumps(json.loads(once(url, ca, Path(key_file).read_text()))["shown"], sort_keys=True))
            served += 1
        except Exception as error:  # noqa: BLE001
            wrong.append(f"{type(error).__name__}: {error}")
    sys.stdout.write(json.dumps({"served": served, "wrong": wrong, "shown": sorted(shown)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
