"""The page at `/` and its files, and a policy that lets it run its own scripts and nothing else."""

from hashlib import sha256
from importlib.resources import files

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

FOLDER = "/page/"
TYPES = {"css": "text/css", "html": "text/html", "js": "text/javascript"}
FILES = {
    each.name: each.read_bytes()
    for each in files("draftwerk.api.http").joinpath("page_files").iterdir()
    if each.name.rpartition(".")[2] in TYPES
}
PAGE = "index.html"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Trusted types of no kind: a browser that knows them parses no text as HTML."""
HEADERS = {
    "content-security-policy": POLICY,
    "cache-control": "no-cache",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
TAGS = {name: f'"{sha256(data).hexdigest()[:32]}"' for name, data in FILES.items()}


async def page(request: Request) -> Response:
    """`GET /` and `GET /page/{name}`: a file, or 304 for one that the browser has."""
    name = request.path_params.get("name", PAGE)
    if name not in FILES:
        raise HTTPException(404)
    if request.headers.get("if-none-match") == TAGS[name]:
        return Response(status_code=304, headers={**HEADERS, "etag": TAGS[name]})
    return file(name)


def file(name: str) -> Response:
    """Return one of the page's files."""
    kind = TYPES[name.rpartition(".")[2]]
    headers = {**HEADERS, "etag": TAGS[name]}
    return Response(FILES[name], headers=headers, media_type=f"{kind}; charset=utf-8")
