"""What every part of the operator's configuration is made of: strict structs in camelCase.

On no path of requests. Must not read files (see config_file).
"""

from __future__ import annotations

import msgspec


class ConfigStruct(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """Base of the configuration: camelCase, unknown fields refused."""
