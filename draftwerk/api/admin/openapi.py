"""The OpenAPI document, generated from the Structs that check requests and word replies."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from draftwerk.api.shared.errors import ErrorReply
from draftwerk.api.shared.handling import Endpoint

JsonObject = dict[str, Any]

ERRORS = {
    "400": "The request is wrong; the error names the field.",
    "401": "An API key is required.",
    "403": "The browser's page is not allowed.",
    "404": "There is no such model or address.",
    "408": "The body took too long.",
    "413": "The body is too large.",
    "500": "The server failed.",
    "503": "The server is full, starting or stopping; Retry-After tells when to come back.",
    "504": "The request's deadline passed before its text began.",
}


def document(endpoints: Sequence[Endpoint]) -> JsonObject:
    """Return the document of `/openapi.json`."""
    structs: list[type[Struct]] = [ErrorReply]
    for each in endpoints:
        structs += [kind for kind in (each.body, each.reply) if kind is not None]
    _, schemas = msgspec.json.schema_components(structs, ref_template="#/components/schemas/{name}")
    for kind in (*structs, *(part for each in endpoints for part in each.parts)):
        _drop_refused(kind, schemas[kind.__name__])
    paths: dict[str, JsonObject] = {}
    for each in endpoints:
        paths.setdefault(each.address, {})[each.method.lower()] = _operation(each)
    return {
        "openapi": "3.1.0",
        "info": {"title": "draftwerk", "version": "1"},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _operation(endpoint: Endpoint) -> JsonObject:
    schema = _reference(endpoint.reply) if endpoint.reply else {}
    answers: JsonObject = {
        "200": {"description": "Done.", "content": {endpoint.media_type: {"schema": schema}}}
    }
    if endpoint.stream_type:
        answers["200"]["content"][endpoint.stream_type] = {}
    error = {"application/json": {"schema": _reference(ErrorReply)}}
    for status, words in ERRORS.items():
        answers[status] = {"description": words, "content": error}
    found: JsonObject = {"summary": endpoint.sentence, "responses": answers}
    if endpoint.body is not None:
        content = {"application/json": {"schema": _reference(endpoint.body)}}
        found["requestBody"] = {"required": True, "content": content}
    names = re.findall(r"\{(\w+)\}", endpoint.address)
    if names:
        found["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in names
        ]
    return found


def _reference(struct: type[Struct]) -> JsonObject:
    return {"$ref": f"#/components/schemas/{struct.__name__}"}


def _drop_refused(struct: type[Struct], schema: JsonObject) -> None:
    """Leave out what is known only to be refused."""
    for field in msgspec.structs.fields(struct):
        if field.type is msgspec.Raw:
            schema["properties"].pop(field.encode_name, None)
