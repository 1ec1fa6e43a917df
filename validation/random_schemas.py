"""Random JSON Schemas of what a grammar can hold a reply to."""

from random import Random
from typing import Any

DEPTH_MAX = 3
WORDS = ("name", "age", "city", "total price", "größe", "is_ok", "a", "käse", "x-y", "数", "tags")
PATTERNS = (
    "^[a-z]{1,6}$",
    "^[A-Z]{2}-[0-9]{1,4}$",
    "^(red|green|blue)?$",
    "^\\d{4}-\\d{2}$",
    "^[a-f0-9]{4}(:[a-f0-9]{4}){0,3}$",
)
FORMATS = ("date", "uuid", "ipv4", "time")
Schema = dict[str, Any]


def schema(rng: Random, depth: int, defs: Schema) -> Schema:
    """Return a random schema; what it refers to goes to `defs`."""
    nested = (objects, arrays)
    flat = (enums, constants, integers, numbers, strings, patterns, formats, plain)
    if depth == 0:
        return rng.choice((objects, objects, arrays))(rng, depth, defs)
    if depth >= DEPTH_MAX:
        return rng.choice(flat)(rng, depth, defs)
    return rng.choice((*nested, alternatives, referred, *flat))(rng, depth, defs)


def objects(rng: Random, depth: int, defs: Schema) -> Schema:
    names = rng.sample(WORDS, rng.randint(1, 4))
    return {
        "type": "object",
        "properties": {name: schema(rng, depth + 1, defs) for name in names},
        "required": [name for name in names if rng.random() < 0.6],
        "additionalProperties": False,
    }


def arrays(rng: Random, depth: int, defs: Schema) -> Schema:
    least = rng.randint(0, 2)
    most = least + rng.randint(0, 2)
    found: Schema = {"type": "array", "minItems": least, "maxItems": most}
    if rng.random() < 0.3:
        found["prefixItems"] = [schema(rng, depth + 1, defs) for _ in range(rng.randint(1, 2))]
        found["maxItems"] = max(most, 2)
    return found | {"items": schema(rng, depth + 1, defs)}


def alternatives(rng: Random, depth: int, defs: Schema) -> Schema:
    return {"anyOf": [schema(rng, depth + 1, defs) for _ in range(rng.randint(2, 3))]}


def referred(rng: Random, depth: int, defs: Schema) -> Schema:
    name = f"def{len(defs)}"
    defs[name] = {}  # taken, while it is being made
    defs[name] = schema(rng, depth + 1, defs)
    return {"$ref": f"#/$defs/{name}"}


def enums(rng: Random, depth: int, defs: Schema) -> Schema:
    values = ["red", "redder", "", "é🙂", 'quo"te', 0, -1.5, True, None, [1, "a"], {"k": 2}]
    return {"enum": rng.sample(values, rng.randint(1, 5))}


def constants(rng: Random, depth: int, defs: Schema) -> Schema:
    return {"const": rng.choice(["fixed text", 42, False, None, ["x"], {"a": "b\n"}])}


def integers(rng: Random, depth: int, defs: Schema) -> Schema:
    low = rng.randint(-200, 200)
    found: Schema = {"type": "integer", "minimum": low, "maximum": low + rng.randint(0, 500)}
    if rng.random() < 0.2:
        found = {"type": "integer", "exclusiveMinimum": low, "exclusiveMaximum": low + 50}
    if rng.random() < 0.2:
        found["multipleOf"] = rng.choice([2, 5, 7])
    return found


def numbers(rng: Random, depth: int, defs: Schema) -> Schema:
    low = round(rng.uniform(-50, 50), rng.randint(0, 2))
    return {"type": "number", "minimum": low, "maximum": low + rng.choice([0.5, 3.25, 100])}


def strings(rng: Random, depth: int, defs: Schema) -> Schema:
    least = rng.randint(0, 4)
    return {"type": "string", "minLength": least, "maxLength": least + rng.randint(0, 10)}


def patterns(rng: Random, depth: int, defs: Schema) -> Schema:
    return {"type": "string", "pattern": rng.choice(PATTERNS)}


def formats(rng: Random, depth: int, defs: Schema) -> Schema:
    return {"type": "string", "format": rng.choice(FORMATS)}


def plain(rng: Random, depth: int, defs: Schema) -> Schema:
    return rng.choice([{"type": "boolean"}, {"type": "null"}, {"type": ["boolean", "null"]}])


def whole(rng: Random) -> Schema:
    """Return a random schema with all its definitions."""
    defs: Schema = {}
    found = schema(rng, 0, defs)
    return found | {"$defs": defs} if defs else found
