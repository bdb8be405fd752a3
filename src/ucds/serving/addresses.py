"""What counts as one client where nothing but its address is known."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address


def network_of(host: str) -> str:
    """Return the part of a client's address that it cannot change at will.

    A client of IPv6 usually has a whole /64, so that it can take another address for every connection.

    Args:
        host: address of the client; of IPv6 with or without a zone.

    Returns:
        The address of IPv4, also where it is mapped into IPv6; the first 64 bits of an address of IPv6; and
        anything else as it is.
    """
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return address.exploded[:19]
    return str(address)
