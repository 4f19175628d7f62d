"""Arguments of ``headrace router`` that name keys and certificates: files that are mounted, never what is in them.

Beside the request path. Must not take a key as an argument (every process of a machine sees those), nor read a file.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from headrace_router.server.access_files import AccessFiles


def add_access_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments."""
    parser.add_argument("--tls-cert", metavar="FILE", type=Path, help="for clients: the certificate and its chain, PEM")
    parser.add_argument("--tls-key", metavar="FILE", type=Path, help="with --tls-cert: its key, without a passphrase")
    parser.add_argument(
        "--tls-client-ca", metavar="FILE", type=Path, help="with --tls-cert: clients need a certificate that it signed"
    )
    parser.add_argument(
        "--api-keys",
        metavar="PATH",
        type=Path,
        help="clients need a key: a file of NAME sha256:HEX, one a line, or a folder of such files",
    )
    parser.add_argument(
        "--credentials-dir",
        metavar="DIR",
        type=Path,
        help="where what engines name is mounted: DIR/NAMESPACE/secrets/NAME/KEY, DIR/NAMESPACE/configmaps/NAME/KEY",
    )


def read_access_arguments(arguments: argparse.Namespace, faults: list[str]) -> AccessFiles:
    """What they say; what is wrong is added to ``faults``."""
    cert, key, client_ca = arguments.tls_cert, arguments.tls_key, arguments.tls_client_ca
    if (cert is None) != (key is None):
        faults.append("--tls-cert and --tls-key: one stands without the other")
    if client_ca is not None and cert is None:
        faults.append("--tls-client-ca: has a meaning only beside --tls-cert and --tls-key")
    for flag, path in (("--tls-cert", cert), ("--tls-key", key), ("--tls-client-ca", client_ca)):
        if path is not None and path.is_dir():
            faults.append(f"{flag} {path}: is a directory; right would be a file")
    folder = arguments.credentials_dir
    if folder is not None and folder.is_file():
        faults.append(f"--credentials-dir {folder}: is a file; right would be a directory")
    tls = (cert, key) if cert is not None and key is not None else None
    return AccessFiles(tls, client_ca, arguments.api_keys, folder)
