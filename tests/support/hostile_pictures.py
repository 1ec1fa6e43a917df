"""Pictures that are none, that are broken, or that would take more than a picture may, by door."""

import base64
import struct
import zlib
from collections.abc import Iterator
from io import BytesIO
from itertools import cycle
from random import Random
from typing import Any, NamedTuple

from PIL import Image

from tests.support.tiny_pictures import picture

ONE = picture(1)
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
MAGIC = {
    "PNG": b"\x89PNG\r\n\x1a\n",
    "JPEG": b"\xff\xd8\xff\xe0",
    "WEBP": b"RIFF\xff\xff\xff\x7fWEBPVP8 ",
    "GIF": b"GIF89a",
    "BMP": b"BM",
}
TURN = {"role": "user", "content": "What?"}


class HostilePicture(NamedTuple):
    """A request that must be refused, and the field that it is refused by."""

    name: str
    path: str
    body: dict[str, Any]
    field: str


def url_of(data: bytes, kind: str = "image/png") -> str:
    """Return a data URL."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def chunk(name: bytes, data: bytes) -> bytes:
    """Return a chunk of a PNG."""
    size, crc = (struct.pack(">I", number) for number in (len(data), zlib.crc32(name + data)))
    return size + name + data + crc


def png(width: int, height: int, *more: bytes) -> bytes:
    """Return the beginning of a PNG that says how large it is, and more chunks."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return MAGIC["PNG"] + chunk(b"IHDR", header) + b"".join(more)


def saved(kind: str, width: int = 40, height: int = 40, mode: str = "RGB") -> bytes:
    """Return a picture in a format."""
    data = BytesIO()
    Image.effect_noise((width, height), 90).convert(mode).save(data, kind)
    return data.getvalue()


def bomb(kind: str, side: int) -> bytes:
    """Return a small file of many pixels."""
    data = BytesIO()
    Image.new("L", (side, side)).save(data, kind)
    return data.getvalue()


def large_headers() -> dict[str, bytes]:
    """Return files whose first bytes say that they are enormous."""
    jpeg = MAGIC["JPEG"] + b"\0\x10JFIF\0\1\1\0\0\1\0\1\0\0"
    jpeg += b"\xff\xc0\0\x11\x08" + struct.pack(">HH", 65_500, 65_500)
    jpeg += b"\3\1\x22\0\2\x11\1\3\x11\1"
    bmp = b"BM" + struct.pack("<IHHI", 2**31 - 1, 0, 0, 54)
    bmp += struct.pack("<IiiHHIIiiII", 40, 2**30, 2**30, 1, 24, 0, 0, 0, 0, 0, 0)
    webp = b"VP8X" + struct.pack("<I", 10) + bytes(4) + b"\xff\xff\xff" * 2
    return {
        "PNG of 50,000 x 50,000": png(50_000, 50_000),
        "PNG of more than there are": png(2**31 - 1, 2**31 - 1),
        "PNG without pixels": png(0, 0),
        "JPEG of 65,500 x 65,500": jpeg,
        "GIF of 65,535 x 65,535": b"GIF89a\xff\xff\xff\xff\x80\0\0" + bytes(6),
        "BMP of 2**60": bmp,
        "WEBP of 16,777,216 x 16,777,216": b"RIFF" + struct.pack("<I", 22) + b"WEBP" + webp,
    }


def files() -> dict[str, bytes]:
    """Return files that are no pictures, or none that is read."""
    noise = Random(3)
    png_text = zlib.compress(bytes(64 * 2**20), 9)
    found = {
        **large_headers(),
        "bomb, PNG": bomb("PNG", 9000),
        "bomb, GIF": bomb("GIF", 9000),
        "bomb, JPEG": bomb("JPEG", 9000),
        "header alone": png(10, 10),
        "no data": png(10, 10, chunk(b"IEND", b"")),
        "data that is none": png(10, 10, chunk(b"IDAT", b"hello" * 9), chunk(b"IEND", b"")),
        "packed text bomb": png(10, 10, chunk(b"zTXt", b"a\0\0" + png_text)),
        "packed profile bomb": png(10, 10, chunk(b"iCCP", b"a\0\0" + png_text)),
        "chunk without end": png(10, 10, struct.pack(">I", 2**31 - 1) + b"IDAT" + b"x" * 99),
        "wrong checksum": ONE[:30] + b"\0\0\0\0" + ONE[34:],
        "a line": picture(1, (3000, 1)),
        "a column": picture(1, (1, 3000)),
        "one byte": b"\x89",
        "nothing": b"",
        "text": b"hello" * 100,
        "HTML": b"<!doctype html><img src=x onerror=alert(1)>",
        "SVG": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        "SVG of entities": b"<!DOCTYPE s [<!ENTITY a 'aa'><!ENTITY b '&a;&a;'>]><svg>&b;</svg>",
        "PDF": b"%PDF-1.4\n1 0 obj",
        "PostScript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(/etc/passwd) (r) file",
        "TIFF": saved("TIFF"),
        "ICO": saved("ICO"),
        "PPM": saved("PPM"),
        "PSD": b"8BPS\0\1" + bytes(40),
        "HEIC": b"\0\0\0\x18ftypheic" + bytes(40),
        "AVIF": b"\0\0\0\x18ftypavif" + bytes(40),
        "ZIP": b"PK\3\4" + bytes(40),
        "ELF": b"\x7fELF" + bytes(60),
        "gzip": b"\x1f\x8b\x08" + bytes(40),
        "GIF that is a script": b"GIF89a/*" + b"*/=1;alert(1)" * 9,
    }
    for kind in FORMATS:
        whole = saved(kind)
        found[f"half a {kind}"] = whole[: len(whole) // 2]
        found[f"noise behind a {kind}'s first bytes"] = MAGIC[kind] + noise.randbytes(500)
    return found


def requests() -> Iterator[HostilePicture]:
    """Yield each file by one of the doors in turn, and what no door takes as a picture."""
    doors = cycle((_chat, _response, _message, _ollama))
    for (name, data), door in zip(files().items(), doors, strict=False):
        yield door(name, base64.b64encode(data).decode())
    for name, url in ADDRESSES.items():
        yield _chat_url(name, url)
        if isinstance(url, str):
            yield _response_url(f"{name}, as input", url)
    for name, source in SOURCES.items():
        content = [{"type": "image", "source": source}]
        body = {"max_tokens": 4, "messages": [{**TURN, "content": content}]}
        yield HostilePicture(name, "/v1/messages", body, "messages[0].content[0].source")
    for name, images in IMAGES.items():
        body = {"stream": False, "messages": [{**TURN, "images": images}]}
        yield HostilePicture(name, "/api/chat", body, "messages[0].images")


ADDRESSES: dict[str, Any] = {
    "remote": "https://example.com/a.png",
    "this machine": "http://127.0.0.1:1/a.png",
    "the host's metadata": "http://169.254.169.254/latest/meta-data",
    "another protocol": "gopher://example.com/a.png",
    "file": "file:///etc/passwd",
    "a path": "/etc/passwd",
    "no base64": "data:image/png;base64,!!!!",
    "cut base64": url_of(ONE)[:-3],
    "not encoded": "data:image/png,abc",
    "no type": "data:;base64,aGVsbG8=",
    "a text's type": url_of(b"hello", "text/plain"),
    "a URL in a URL": url_of(url_of(ONE).encode()),
    "a number": 7,
    "null": None,
    "empty": "",
}
SOURCES: dict[str, Any] = {
    "source of an address": {"type": "url", "url": "https://example.com/a.png"},
    "source of a file": {"type": "file", "file_id": "file_1"},
    "source without a type": {"data": "aGVsbG8="},
    "source of text": {"type": "base64", "media_type": "text/plain", "data": "aGVsbG8="},
    "source that is another's": {
        **{"type": "base64", "media_type": "image/jpeg"},
        "data": base64.b64encode(ONE).decode(),
    },
    "source of a number": {"type": "base64", "media_type": "image/png", "data": 7},
    "no source": None,
}
IMAGES: dict[str, Any] = {
    "images of a number": 7,
    "images of numbers": [7],
    "images of an object": [{"data": "aGVsbG8="}],
    "images of an address": ["https://example.com/a.png"],
    "images of a path": ["/etc/passwd"],
}


def _chat(name: str, data: str) -> HostilePicture:
    return _chat_url(name, f"data:image/png;base64,{data}")


def _chat_url(name: str, url: Any) -> HostilePicture:
    part = {"type": "image_url", "image_url": {"url": url}}
    body = {"max_tokens": 4, "messages": [{**TURN, "content": [part]}]}
    return HostilePicture(
        name, "/v1/chat/completions", body, "messages[0].content[0].image_url.url"
    )


def _response(name: str, data: str) -> HostilePicture:
    return _response_url(name, f"data:image/png;base64,{data}")


def _response_url(name: str, url: str) -> HostilePicture:
    part = {"type": "input_image", "image_url": url}
    body = {"max_output_tokens": 4, "input": [{**TURN, "content": [part]}]}
    return HostilePicture(name, "/v1/responses", body, "input[0].content[0].image_url")


def _message(name: str, data: str) -> HostilePicture:
    source = {"type": "base64", "media_type": "image/png", "data": data}
    body = {
        "max_tokens": 4,
        "messages": [{**TURN, "content": [{"type": "image", "source": source}]}],
    }
    return HostilePicture(name, "/v1/messages", body, "messages[0].content[0].source.data")


def _ollama(name: str, data: str) -> HostilePicture:
    body = {"stream": False, "messages": [{**TURN, "images": [data]}]}
    return HostilePicture(name, "/api/chat", body, "messages[0].images[0]")
