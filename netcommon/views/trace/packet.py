"""A frame as the kernel sees it when a device has received it: one VLAN tag taken off, the headers found (Linux 6.x, net/netfilter)."""

from __future__ import annotations

import ipaddress
from functools import cached_property

IPV4, IPV6, ARP = 0x0800, 0x86DD, 0x0806
TAGS = (0x8100, 0x88A8)
BROADCAST = "ff:ff:ff:ff:ff:ff"

#: What eth_type_trans() calls a frame with a length instead of a type: Novell's raw 802.3, and all others.
RAW_802_3, LLC_802_2 = 0x0001, 0x0004
FIRST_TYPE = 0x0600

HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION, NOTHING, DESTINATION = 0, 43, 44, 51, 59, 60
#: ICMPv6's number, and the type of a neighbour solicitation (RFC 4861, 4.3).
SOLICITATION = 58, b"\x87"
#: Protocols whose first bytes the router takes for ports (flow_ports_offset()): TCP, UDP, DCCP, ESP, SCTP, UDP-Lite.
PORTED = frozenset({6, 17, 33, 50, 132, 136})
EXTENSIONS = frozenset({HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION, NOTHING, DESTINATION})


#: To whom a frame is, as the device sees it that takes it from the wire (PACKET_HOST and others, eth_type_trans()).
TO_US, TO_GROUP, TO_OTHERS = "us", "group", "others"


class Packet:
    """``link`` is the whole frame, from the destination's MAC on, without checksum."""

    def __init__(self, link: bytes) -> None:
        self.link = link
        self.tag = link[12:16] if int.from_bytes(link[12:14], "big") in TAGS and len(link) >= 18 else b""
        start = 16 if self.tag else 12
        self.network = link[start + 2 :]
        given = int.from_bytes(link[start : start + 2], "big")
        self.protocol = given if given >= FIRST_TYPE else RAW_802_3 if self.network[:2] == b"\xff\xff" else LLC_802_2

    @property
    def vid(self) -> int:
        """That of the tag; 0: none, or a priority alone."""
        return int.from_bytes(self.tag[2:], "big") & 0xFFF if self.tag else 0

    @property
    def tag_protocol(self) -> int:
        """The EtherType of the tag; 0: none, or a priority alone."""
        return int.from_bytes(self.tag[:2], "big") if self.vid else 0

    @property
    def source_mac(self) -> str:
        return self.link[6:12].hex(":")

    @property
    def target_mac(self) -> str:
        return self.link[:6].hex(":")

    @property
    def to_group(self) -> bool:
        """To several: broadcast or multicast."""
        return bool(self.link[0] & 1)

    @property
    def body(self) -> int:
        """Tell how many bytes the kernel counts of the frame: without the tag that it takes off."""
        return len(self.link) - len(self.tag)

    @property
    def ports(self) -> tuple[int, int]:
        """Return what the kernel's router takes for ports (skb_flow_get_ports()); zeros where there are none.

        It looks into no fragment, the first included, and not behind the packet's own end.
        """
        offset = self._upper[1]
        data = self.network[offset : offset + 4] if self.upper in PORTED and self.whole else b""
        whole = len(data) == 4 and offset + 4 <= self._end
        return (int.from_bytes(data[:2], "big"), int.from_bytes(data[2:], "big")) if whole else (0, 0)

    @property
    def label(self) -> int:
        """Return the flow label of IPv6."""
        return int.from_bytes(self.network[1:4], "big") & 0xFFFFF if self.protocol == IPV6 else 0

    @property
    def _end(self) -> int:
        """Where the packet ends by its own word; behind that is what fills a short frame up."""
        if self.protocol == IPV6:
            return 40 + int.from_bytes(self.network[4:6], "big")
        return int.from_bytes(self.network[2:4], "big")

    @property
    def source(self) -> str:
        """The IP address it comes from; of ARP the sender's. "" where there is none."""
        return self._address({IPV4: (12, 4), IPV6: (8, 16), ARP: (14, 4)})

    @property
    def target(self) -> str:
        """The IP address it goes to; of ARP that which is asked for."""
        return self._address({IPV4: (16, 4), IPV6: (24, 16), ARP: (24, 4)})

    def _address(self, places: dict[int, tuple[int, int]]) -> str:
        offset, size = places.get(self.protocol, (0, 0))
        packed = self.network[offset : offset + size]
        return str(ipaddress.ip_address(packed)) if size and len(packed) == size else ""

    @property
    def upper(self) -> int | None:
        """The number of the protocol above IP; None where nftables does not know it (nft_set_pktinfo_ipv4_validate() and _ipv6_)."""
        return self._upper[0]

    @property
    def whole(self) -> bool:
        """Tell whether it is no fragment, neither the first one nor, of IPv6, the only one."""
        if self.protocol == IPV4:
            return not int.from_bytes(self.network[6:8], "big") & 0x3FFF
        return self.extension(FRAGMENT) is None

    @property
    def fragment(self) -> bool:
        """A later fragment: what is above IP lies in the first."""
        return self._upper[2]

    @property
    def transport(self) -> bytes | None:
        """What is above IP; None where it is not known, or lies in another fragment."""
        number, offset, later = self._upper
        return None if number is None or later else self.network[offset:]

    @cached_property
    def _upper(self) -> tuple[int | None, int, bool]:
        """Number, offset, whether a later fragment."""
        nothing = None, 0, False
        if self.protocol == IPV4:
            head = self.network[:20]
            if len(head) < 20 or head[0] >> 4 != 4 or head[0] & 15 < 5:
                return nothing
            length, offset = int.from_bytes(head[2:4], "big"), (head[0] & 15) * 4
            if len(self.network) < length or length < offset:
                return nothing
            return head[9], offset, bool(int.from_bytes(head[6:8], "big") & 0x1FFF)
        if self.protocol == IPV6:
            head = self.network[:40]
            if len(head) < 40 or head[0] >> 4 != 6 or int.from_bytes(head[4:6], "big") + 40 > len(self.network):
                return nothing
            return self._walk(-1) or nothing
        return nothing

    def extension(self, number: int) -> int | None:
        """Where the IPv6 extension header of this number begins, from the network header on; None where there is none."""
        if self.protocol != IPV6 or len(self.network) < 40:
            return None
        found = self._walk(number)
        return None if found is None else found[1]

    def _walk(self, sought: int) -> tuple[int, int, bool] | None:
        """ipv6_find_hdr(): the header ``sought``, or for -1 the first that is no extension; the last value as above."""
        number, offset = self.network[6], 40
        while number != sought:
            if number not in EXTENSIONS or number == NOTHING:
                return (number, offset, False) if sought < 0 else None
            head = self.network[offset : offset + 2]
            if len(head) < 2:
                return None
            if number == FRAGMENT:
                place = self.network[offset + 2 : offset + 4]
                if len(place) < 2:
                    return None
                if int.from_bytes(place, "big") & 0xFFF8:
                    final = head[0] not in EXTENSIONS or head[0] == NOTHING
                    return (head[0], 0, True) if sought < 0 and final else None
                size = 8
            elif number == AUTHENTICATION:
                if sought < 0:
                    return number, offset, False
                size = (head[1] + 2) * 4
            else:
                size = (head[1] + 1) * 8
            number, offset = head[0], offset + size
        return number, offset, False
