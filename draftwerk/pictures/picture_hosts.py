"""Pictures of other addresses: from hosts that are named, in bounded bytes and time.

Who asks chooses an address, so this server must reach nothing for him that it was not told to: a
name's addresses are looked at where the connection is made, and none of a private network is used
unless that address itself is named. A redirect is followed within one host.
"""

import asyncio
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import SplitResult, urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from draftwerk.pictures.body_pictures import BYTES_MAX
from draftwerk.settings.setting_fields import ConfigError

HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:[0-9]{1,5})?", re.ASCII)
SCHEMES = {"http": 80, "https": 443}
ADDRESS_MAX = 2048
"""Characters of an address."""
REDIRECTS_MAX = 3
FETCH_S, REQUEST_S = 10.0, 30.0
"""For one picture, from looking its host up to the last byte, and for all of a request."""
AT_ONCE = 8
MOVED = (301, 302, 303, 307, 308)
TRANSLATED = IPv6Network("64:ff9b::/96")
"""Addresses behind which a network has others of the fourth version."""


class UnfetchedError(Exception):
    """A picture that is not fetched; the message is for the client, behind the field's name."""


@dataclass(slots=True)
class PictureHosts:
    """Fetches pictures from named hosts."""

    names: tuple[str, ...]
    """HOST or HOST:PORT; without a port those that http and https have."""
    bytes_max: int = BYTES_MAX
    seconds: float = FETCH_S
    resolver: AbstractResolver | None = None
    """Looks names up; the system does where there is none."""
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    def __post_init__(self) -> None:
        """Raise ConfigError for what is no host."""
        for name in self.names:
            if not HOST.fullmatch(name):
                said = f"image_hosts: {name!r} is no host; write for example a.site or a.site:8080"
                raise ConfigError(said)

    async def fetch(self, address: str, left_s: float = FETCH_S) -> bytes:
        """Return the bytes of a picture, for which there is so much time at most.

        Raises UnfetchedError.
        """
        url = self._checked(address)
        try:
            async with (
                asyncio.timeout(min(self.seconds, left_s)),
                self._turns,
                self._session() as http,
            ):
                return await self._followed(http, url)
        except TimeoutError:
            raise UnfetchedError("it takes too long to fetch") from None
        except UnfetchedError:
            raise
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # Its name alone: the message may tell addresses that are no concern of a client's.
            raise UnfetchedError(f"it cannot be fetched ({type(error).__name__})") from None

    def _checked(self, address: str, before: SplitResult | None = None) -> SplitResult:
        """Return an address of a host that is named. Raises UnfetchedError."""
        if len(address) > ADDRESS_MAX:
            raise UnfetchedError(f"its address has over {ADDRESS_MAX} characters")
        try:
            url = urlsplit(address)
            host, port = url.hostname or "", url.port or SCHEMES.get(url.scheme)
        except ValueError:
            raise UnfetchedError("its address is none") from None
        if port is None or not host or not host.isascii() or url.username is not None:
            raise UnfetchedError("its address is not http(s)://HOST/PATH")
        if before is not None and host != before.hostname:
            raise UnfetchedError(f"its address leads to another host, {host[:100]}")
        shown = f"[{host}]" if ":" in host else host
        usual = SCHEMES[url.scheme] == port
        if f"{shown}:{port}" not in self.names and not (usual and shown in self.names):
            raise UnfetchedError(f"{shown[:100]}:{port} is no host that pictures are fetched from")
        return url

    def _session(self) -> aiohttp.ClientSession:
        """Return what makes one picture's connections: no proxy, no cookie, nothing kept."""
        resolver = PublicResolver(self.names, self.resolver or ThreadedResolver())
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                resolver=resolver, use_dns_cache=False, force_close=True, limit=2
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"accept": "image/*", "accept-encoding": "identity"},
            auto_decompress=False,
            trust_env=False,
        )

    async def _followed(self, http: aiohttp.ClientSession, url: SplitResult) -> bytes:
        for _ in range(REDIRECTS_MAX + 1):
            check_public(url.hostname or "", self.names)
            async with http.get(url.geturl(), allow_redirects=False) as reply:
                if reply.status in MOVED:
                    url = self._checked(
                        urljoin(url.geturl(), reply.headers.get("location", "")), url
                    )
                    continue
                if reply.status != 200:
                    raise UnfetchedError(f"{url.hostname} answers {reply.status}")
                if reply.headers.get("content-encoding", "identity") != "identity":
                    raise UnfetchedError("it comes compressed, which was not asked for")
                return await self._read(reply)
        raise UnfetchedError(f"its address leads on more than {REDIRECTS_MAX} times")

    async def _read(self, reply: aiohttp.ClientResponse) -> bytes:
        data = bytearray()
        async for piece in reply.content.iter_chunked(2**16):
            data += piece
            if len(data) > self.bytes_max:
                raise UnfetchedError(f"it is over {self.bytes_max // 2**20} MiB")
        return bytes(data)


class PublicResolver(AbstractResolver):
    """Looks names up, and returns no address of a private network that is not named."""

    def __init__(self, names: Iterable[str], inner: AbstractResolver) -> None:
        self._names, self._inner = tuple(names), inner

    async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[ResolveResult]:
        """Return addresses; one that may not be used refuses the name."""
        found = await self._inner.resolve(host, port, family)  # type: ignore[arg-type]
        for each in found:
            check_public(each["host"], self._names)
        return found

    async def close(self) -> None:
        """Close what looks names up."""
        await self._inner.close()


def check_public(host: str, names: Iterable[str]) -> None:
    """Refuse an address of a private network; names are not looked at. Raises UnfetchedError."""
    with suppress(ValueError):
        address = ip_address(host.partition("%")[0])
        if not is_public(address) and not _is_named(address, names):
            raise UnfetchedError("its host is in a private network")


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address, and one that is packed in it, is of the whole Internet."""
    inner: list[IPv4Address | None] = []
    if isinstance(address, IPv6Address):
        inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
        if address in TRANSLATED:
            inner.append(IPv4Address(int(address) & 0xFFFFFFFF))
    return (
        address.is_global
        and not address.is_multicast
        and all(is_public(each) for each in inner if each is not None)
    )


def _is_named(address: IPv4Address | IPv6Address, names: Iterable[str]) -> bool:
    """Whether the address itself is among the hosts, with or without a port."""
    shown = f"[{address}]" if address.version == 6 else f"{address}"
    return any(name == shown or name.rpartition(":")[0] == shown for name in names)
