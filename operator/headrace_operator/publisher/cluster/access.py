"""The client of another cluster, made anew when its mounted kubeconfig changes (tokens there expire).

On the routing-weight path.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Lock

from headrace_operator.kube.client import KubeClient, KubeFault
from headrace_operator.kube.remote import KubeconfigRefused, read_access, remote_client
from headrace_operator.publisher.files import Signature


class RemoteAccess:
    """One cluster's kubeconfig file, and the client that it gives."""

    def __init__(self, name: str, path: Path, may_write: Callable[[], bool]) -> None:
        self.name = name
        self.path = path
        self._may_write = may_write
        self._lock = Lock()
        self._signature: Signature | None = None
        self._client: KubeClient | None = None

    def client(self) -> KubeClient:
        """The client of the file as it is now.

        Raises:
            KubeFault: the file can't be taken.
        """
        with self._lock:
            if self._client is None or self._signature is None or not self._signature.holds(self.path):
                self._signature = Signature(self.path)
                try:
                    self._client = remote_client(self.name, read_access(self.path), self._may_write)
                except KubeconfigRefused as refused:
                    self._client = None
                    raise KubeFault(401, "KubeconfigRefused", str(refused)) from None
            return self._client
