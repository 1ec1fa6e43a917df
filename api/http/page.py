"""The page at `/`: one file, and a policy that lets it run its own script and nothing else."""

import re
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

INLINE = re.compile(r"<(style|script)>(.*?)</\1>", re.DOTALL)


def policy(page: str) -> str:
    """Return the content security policy that names the page's own style and script by digest."""
    allowed: dict[str, str] = {}
    for kind, text in INLINE.findall(page):
        digest = b64encode(sha256(text.encode()).digest()).decode()
        allowed[kind] = f"'sha256-{digest}'"
    return (
        f"default-src 'none'; script-src {allowed['script']}; style-src {allowed['style']}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


PAGE = files("draftwerk.api.http").joinpath("page.html").read_text(encoding="utf-8")
HEADERS = {
    "content-security-policy": policy(PAGE),
    "cache-control": "no-cache",
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


async def page(request: Request) -> Response:
    """`GET /`."""
    return Response(PAGE, headers=HEADERS, media_type="text/html; charset=utf-8")
