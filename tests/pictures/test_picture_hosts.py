"""Pictures of other addresses: from named hosts, and nothing of any other."""

import asyncio
import socket
from time import perf_counter
from typing import Any

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver

from draftwerk.pictures.picture_hosts import PictureHosts, PublicResolver, UnfetchedError, is_public
from draftwerk.settings.setting_fields import ConfigError
from tests.support.http_server import LOCAL, http_server

BYTES_MAX = 2**20


class Names(AbstractResolver):
    """Looks every name up as one address."""

    def __init__(self, address: str = LOCAL) -> None:
        self.address, self.asked = address, list[str]()

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> Any:
        self.asked.append(host)
        if not self.address:
            raise OSError("there is no such name")
        found = {"hostname": host, "host": self.address, "port": port, "family": socket.AF_INET}
        return [found | {"proto": 0, "flags": 0}]

    async def close(self) -> None: ...


async def fault(hosts: PictureHosts, address: str, **more: Any) -> str:
    """Return why an address is not fetched."""
    with pytest.raises(UnfetchedError) as caught:
        await hosts.fetch(address, **more)
    return str(caught.value)


async def data(request: web.Request) -> web.Response:
    assert "cookie" not in request.headers
    return web.Response(body=b"picture", headers={"set-cookie": "a=b"})


async def test_a_named_host_is_asked_and_no_other() -> None:
    async with http_server(a=data) as port:
        names, other = Names(), Names()
        hosts = PictureHosts((f"a.site:{port}", LOCAL), BYTES_MAX, resolver=names)
        for _ in range(2):
            assert await hosts.fetch(f"http://A.site:{port}/a?b#c") == b"picture"
        assert names.asked == ["a.site"] * 2
        hosts = PictureHosts(("a.site",), BYTES_MAX, resolver=other)
        for address in (
            f"http://a.site:{port}/a",
            f"http://b.site:{port}/a",
            f"http://{LOCAL}:{port}/a",
            f"http://a.site@{LOCAL}:{port}/a",
            f"http://user@a.site:{port}/a",
            "http://sub.a.site/",
            "https://a.site.b/",
            "https://a.site:99999/",
            "https://a.site:0x50/",
            "https://[a.site]/",
            "https:a.site",
            "https://",
            "ftp://a.site/",
            "http://a.\u017fite/",
            "http://a.site/" + "a" * 3000,
        ):
            assert await fault(hosts, address)
        assert not other.asked


@pytest.mark.parametrize(
    "address",
    [
        *(LOCAL, "10.1.2.3", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1", "::1", "::"),
        *("::ffff:127.0.0.1", "64:ff9b::a00:1", "2002:7f00:1::", "fe80::1", "fd00::1"),
        "192.168.1.1",
    ],
)
async def test_no_name_leads_into_a_private_network(address: str) -> None:
    hosts = PictureHosts(("a.site",), BYTES_MAX, resolver=Names(address))
    assert "private network" in await fault(hosts, "http://a.site/a")


def test_other_addresses_are_public() -> None:
    from ipaddress import ip_address

    assert all(map(is_public, map(ip_address, ("8.8.8.8", "2606:4700::1", "64:ff9b::808:808"))))


async def test_a_private_address_is_used_where_it_is_named() -> None:
    async with http_server(a=data) as port:
        named = f"{LOCAL}:{port}"
        assert await PictureHosts((named,), BYTES_MAX).fetch(f"http://{named}/a") == b"picture"
        by_name = PictureHosts((f"localhost:{port}",), BYTES_MAX)
        assert "private network" in await fault(by_name, f"http://localhost:{port}/a")
        both = PictureHosts((f"localhost:{port}", LOCAL), BYTES_MAX)
        assert await both.fetch(f"http://localhost:{port}/a") == b"picture"
        assert "no host" in await fault(both, f"http://127.1:{port}/a")


async def test_redirects_stay_with_their_host() -> None:
    async def within(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"location": "/a"})

    async def elsewhere(request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"location": f"http://b.site:{port}/a"})

    async def around(request: web.Request) -> web.Response:
        return web.Response(status=301, headers={"location": "/around"})

    async def to_file(request: web.Request) -> web.Response:
        return web.Response(status=301, headers={"location": "file:///etc/passwd"})

    async def to_port(request: web.Request) -> web.Response:
        return web.Response(status=301, headers={"location": f"http://a.site:{port + 1}/"})

    async def nowhere(request: web.Request) -> web.Response:
        return web.Response(status=301)

    handlers: Any = dict(
        a=data, w=within, e=elsewhere, around=around, f=to_file, p=to_port, n=nowhere
    )
    async with http_server(**handlers) as port:
        names = Names()
        hosts = PictureHosts((f"a.site:{port}", f"b.site:{port}", LOCAL), 9, resolver=names)
        url = f"http://a.site:{port}/"
        assert await hosts.fetch(url + "w") == b"picture"
        for path, said in {
            **{"e": "another host, b.site", "around": "more than 3 times", "p": "no host"},
            **{"f": "is not http", "n": "more than 3 times"},
        }.items():
            assert said in await fault(hosts, url + path)
        assert set(names.asked) == {"a.site"}


async def test_bodies_end() -> None:
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        reply = web.StreamResponse()
        await reply.prepare(request)
        while True:
            await reply.write(bytes(2**16))
            sent += 2**16

    async def slow(request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse()
        await reply.prepare(request)
        for _ in range(100):
            await reply.write(b"a")
            await asyncio.sleep(0.05)
        return reply

    async def silent(request: web.Request) -> web.Response:
        await asyncio.sleep(10)
        raise AssertionError

    async def packed(request: web.Request) -> web.Response:
        return web.Response(body=b"a", headers={"content-encoding": "br"})

    async def absent(request: web.Request) -> web.Response:
        return web.Response(status=404, text="<html>")

    handlers: Any = dict(e=endless, s=slow, q=silent, p=packed, m=absent)
    async with http_server(**handlers) as port:
        hosts = PictureHosts((f"{LOCAL}:{port}",), BYTES_MAX, seconds=0.3)
        url = f"http://{LOCAL}:{port}/"
        begun = perf_counter()
        for path, said in {
            **{"e": "over 1 MiB", "s": "too long", "q": "too long", "p": "compressed"},
            "m": "answers 404",
        }.items():
            assert said in await fault(hosts, url + path)
        assert "too long" in await fault(hosts, url + "q", left_s=0.0)
        assert perf_counter() - begun < 5
        assert sent < 32 * BYTES_MAX


async def test_hosts_that_are_not_there_are_told_without_their_addresses() -> None:
    with socket.socket() as taken:
        taken.bind((LOCAL, 0))
        port = taken.getsockname()[1]
        hosts = PictureHosts((f"a.site:{port}", LOCAL), BYTES_MAX, resolver=Names())
        said = await fault(hosts, f"http://a.site:{port}/")
        assert "cannot be fetched" in said and LOCAL not in said
    hosts = PictureHosts(("a.site",), BYTES_MAX, resolver=Names(""))
    assert "cannot be fetched" in await fault(hosts, "http://a.site/")


async def test_what_is_no_http_is_told() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x89PNG" * 99)
        writer.close()

    other = await asyncio.start_server(answer, LOCAL, 0)
    async with other:
        named = f"{LOCAL}:{other.sockets[0].getsockname()[1]}"
        hosts = PictureHosts((named,), BYTES_MAX)
        assert "cannot be fetched" in await fault(hosts, f"http://{named}/a")
        assert "cannot be fetched" in await fault(hosts, f"https://{named}/a")


async def test_every_address_of_a_name_is_looked_at() -> None:
    class Two(Names):
        async def resolve(self, host: str, port: int = 0, family: Any = 0) -> Any:
            public = [{"host": "8.8.8.8"}]
            return [*public, *await super().resolve(host, port, family)]

    with pytest.raises(UnfetchedError):
        await PublicResolver((), Two()).resolve("a.site")


@pytest.mark.parametrize("name", ["http://a.site", "a.site/", "", "A.site", "*", "a.site:x", "::1"])
def test_what_is_no_host_is_refused_at_the_start(name: str) -> None:
    with pytest.raises(ConfigError, match="image_hosts"):
        PictureHosts((name,))
