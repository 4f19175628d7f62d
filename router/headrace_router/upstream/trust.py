"""Whom an https engine is believed to be: contexts that verify certificate and name, always.

Beside the request path: a context is made when an authority is new, not for a connection. Trusts the authorities that
are given and no other, or the system's where an engine names none. Must never switch verification off or fall back.
"""

from __future__ import annotations

import re
import ssl
from typing import Final

_BEGUN: Final = re.compile(rb"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----")


def system_trust() -> ssl.SSLContext:
    """Trusts the system's authorities."""
    return _hardened(ssl.create_default_context())


def trust_in(authorities: bytes) -> ssl.SSLContext:
    """Trusts these authorities alone (PEM).

    Raises:
        ValueError: there is no certificate, or one that can't be read: half a bundle must not pass for a whole one.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # What is named is trusted, be it an engine's own certificate.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    add_authorities(context, authorities)
    return _hardened(context)


def add_authorities(context: ssl.SSLContext, authorities: bytes) -> None:
    """Let a context trust certificates (PEM).

    Raises:
        ValueError: see trust_in.
    """
    begun = len(_BEGUN.findall(authorities))
    if not begun:
        raise ValueError("holds no certificate; right would be PEM: -----BEGIN CERTIFICATE----- and so on")
    try:
        context.load_verify_locations(cadata=authorities.decode("ascii", "replace"))
    except (ssl.SSLError, ValueError) as error:
        raise ValueError(f"holds a certificate that can't be read: {reason_of(error)}") from error
    whole = authorities.count(b"-----END ")
    if whole < begun:
        raise ValueError(f"holds {begun} certificates, of which {begun - whole} have no end")


def reason_of(error: Exception) -> str:
    """OpenSSL's word without its file and line."""
    reason = getattr(error, "reason", None)
    return str(reason).lower().replace("_", " ") if reason else " ".join(str(error).split())[:120]


def _hardened(context: ssl.SSLContext) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    assert context.check_hostname and context.verify_mode is ssl.CERT_REQUIRED
    return context
