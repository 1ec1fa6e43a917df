"""Whether a server separates its caches by `cache_salt`, asked of the server itself."""

import asyncio
import os
import secrets

import aiohttp
import msgspec

from draftwerk_tools.loadtest.client.http.transport import open_session
from draftwerk_tools.loadtest.client.target import PATHS, Target
from draftwerk_tools.loadtest.options import Endpoint, Isolate, LoadTestOptions
from draftwerk_tools.loadtest.schedule.isolation import SALT, Isolation
from draftwerk_tools.loadtest.workloads.catalogue import open_workload

ANSWER_S = 10.0
DEPTH_MAX = 8
"""References followed in an OpenAPI page."""
Document = dict[str, object]


async def isolation_of(options: LoadTestOptions, how: Isolate) -> Isolation:
    """Choose how the runs of a sweep over this server are isolated."""
    return Isolation(
        key=secrets.token_hex(4),
        salted=how == "salt" or (how == "auto" and await takes_salt(options)),
        distinct=open_workload(options).distinct,
        seed=options.seed,
    )


async def takes_salt(options: LoadTestOptions) -> bool:
    """Whether `/v1/capabilities`, or the OpenAPI page, names the field for the endpoint."""
    target = Target.of(options.url, os.environ.get(options.api_key_env, ""))
    async with open_session(options, target) as session:
        page = await _document(session, f"{target.root}/v1/capabilities")
        if page:
            return _obeyed(page, options.endpoint)
        page = await _document(session, f"{target.root}/openapi.json")
    return _described(page, options.endpoint)


async def _document(session: aiohttp.ClientSession, url: str) -> Document:
    """Fetch a JSON object; an empty one where there is none."""
    try:
        async with asyncio.timeout(ANSWER_S), session.get(url) as response:
            if response.status == 200:
                return msgspec.json.decode(await response.read(), type=Document)
    except (aiohttp.ClientError, ConnectionError, TimeoutError, msgspec.MsgspecError):
        pass
    return {}


def _obeyed(capabilities: Document, endpoint: Endpoint) -> bool:
    return SALT in _at(capabilities, "endpoints", PATHS[endpoint], "supported")


def _described(page: Document, endpoint: Endpoint) -> bool:
    """Whether the schema of the endpoint's body has the property."""
    path = ("paths", PATHS[endpoint], "post", "requestBody", "content", "application/json")
    schema = _at(page, *path, "schema")
    for _ in range(DEPTH_MAX):
        if SALT in _at(schema, "properties"):
            return True
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return False
        schema = _at(page, *reference.removeprefix("#/").split("/"))
    return False


def _at(document: Document, *keys: str) -> Document:
    """Return the object at a path of keys; an empty one where there is none."""
    for key in keys:
        inner = document.get(key)
        if not isinstance(inner, dict):
            return {}
        document = msgspec.convert(inner, Document)
    return document
