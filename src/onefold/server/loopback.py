"""Names and addresses that only this machine can reach."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Whether a host, as a URL or a bind has it, is this machine and nobody else's way to it.

    Only what is written in the one usual way: a name that happens to resolve to 127.0.0.1 is how
    another site's page gets here.
    """
    name = host.removeprefix("[").removesuffix("]").removesuffix(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback
