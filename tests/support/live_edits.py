"""Run inside a cluster's network: changes something at the API server and measures when a router has it.

``python -m support.live_edits edits NAMESPACE CONFIGMAP ADMIN COUNT``: revisions of a table, from the write to the
moment at which the router applied it. ``… pod NAMESPACE ADMIN``: a pod is deleted, until its address is out of use.
``… relist SERVER TOKEN CA NAMESPACE``: a watch from version 1, which a real server answers with 410.
One line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import kubernetes
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from headrace_router.kube.client import KubeApi
from headrace_router.kube.credentials import Credentials
from headrace_router.kube.watch import Reflector
from headrace_router.tables.kube_table import ConfigMap

LIMIT = 60.0


def core() -> Any:
    kubernetes.config.load_kube_config()
    return kubernetes.client.CoreV1Api()


def read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return bytes(answer.read())


def metric(admin: str, name: str) -> float:
    families = text_string_to_metric_families(read(f"{admin}/metrics").decode())
    return sum(sample.value for family in families for sample in family.samples if sample.name == name)


def edits(namespace: str, name: str, admin: str, count: str) -> list[float]:
    """Milliseconds of each edit."""
    api = core()
    found = api.read_namespaced_config_map(name, namespace)
    table = json.loads(found.data["table.json"])
    took = []
    for _ in range(int(count)):
        table["identity"]["revision"] += 1
        body = {"data": {"table.json": json.dumps(table)}}
        began = time.time()
        api.patch_namespaced_config_map(name, namespace, body)
        end = time.monotonic() + LIMIT
        while (told := json.loads(read(f"{admin}/readyz"))["tables"][0])["revision"] != table["identity"]["revision"]:
            if time.monotonic() > end:
                raise SystemExit(f"revision {table['identity']['revision']} was not applied: {told}")
            time.sleep(0.01)
        took.append(1000 * (told["appliedAt"] - began))
    return took


def pod(namespace: str, admin: str) -> float:
    """Seconds."""
    api = core()
    first = api.list_namespaced_pod(namespace, label_selector="app.kubernetes.io/instance=sim").items[0]
    address = f"http://{first.status.pod_ip}:8000"
    before = metric(admin, "headrace_endpoints")
    began = time.monotonic()
    api.delete_namespaced_pod(first.metadata.name, namespace)
    while metric(admin, "headrace_endpoints") >= before:
        if time.monotonic() - began > LIMIT:
            raise SystemExit(f"{address} is still in use")
        time.sleep(0.01)
    return time.monotonic() - began


async def relist(server: str, token: str, ca: str, namespace: str) -> dict[str, int]:
    """Lists made, and objects found, when the version that a watch begins with is long forgotten."""
    api = KubeApi(Credentials(server, Path(token), Path(ca)))
    lists: list[list[ConfigMap]] = []
    listed = asyncio.Event()

    def keep(found: list[ConfigMap]) -> None:
        lists.append(found)
        listed.set()

    reflector = Reflector(
        api,
        f"/api/v1/namespaces/{namespace}/configmaps",
        {"fieldSelector": "metadata.name=headrace-chat-fe-a"},
        kind=ConfigMap,
        chance=lambda: 0.5,
        listed=keep,
        changed=lambda _kind, _object: None,
        told=lambda _fault: None,
    )
    reflector._version, reflector._list_due = "1", float("inf")
    running = asyncio.create_task(reflector.run())
    async with asyncio.timeout(LIMIT):
        await listed.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await api.close()
    return {"lists": len(lists), "found": len(lists[0])}


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    done = asyncio.run(relist(*rest)) if what == "relist" else {"edits": edits, "pod": pod}[what](*rest)
    print(msgspec.json.encode(done).decode())  # noqa: T201
