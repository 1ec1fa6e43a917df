"""Random JSON schemas of arguments, and random values."""

from random import Random
from typing import Any

WORDS = ("a", "city", "n_1", "x_y", "Größe", "type", "description", "properties")


def random_schema(rng: Random) -> dict[str, Any]:
    """Return the schema of a function's arguments; texts and lists under it are short."""
    names = rng.sample(WORDS, rng.randint(0, 4))
    return {
        "type": "object",
        "description": "The arguments.",
        "properties": {name: _property(rng, 0) for name in names},
        "required": [name for name in names if rng.random() < 0.6],
        "additionalProperties": False,
    }


def _property(rng: Random, depth: int) -> dict[str, Any]:
    kinds = ["string", "enum", "integer", "number", "boolean", "null", "const", "either", "short"]
    kind = rng.choice(kinds if depth > 1 else [*kinds, "array", "object", "array", "object"])
    match kind:
        case "string":
            return {"type": "string", "maxLength": rng.randint(0, 5), "description": "A text."}
        case "short":
            return {"type": "string", "minLength": 1, "maxLength": 3}
        case "enum":
            return {"enum": rng.sample(["red", "redder", "it's", 'a "b"', "</x>"], 3)}
        case "const":
            return {"const": rng.choice(["one", 1, None, True])}
        case "integer":
            low = rng.randint(-20, 20)
            return {"type": "integer", "minimum": low, "maximum": low + rng.randint(0, 300)}
        case "number":
            return {"type": "number", "minimum": 0, "maximum": 1}
        case "either":
            return {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}]}
        case "array":
            items = _property(rng, depth + 1)
            return {"type": "array", "items": items, "minItems": rng.randint(0, 1), "maxItems": 2}
        case "object":
            return {**random_schema(rng), "title": "Inner"} if depth < 1 else {"type": "null"}
        case _:
            return {"type": kind}


def random_value(rng: Random, depth: int = 0) -> Any:
    """Return any JSON value."""
    kinds = ["text", "int", "float", "bool", "null"] + ["list", "object"] * (2 * (depth < 2))
    match rng.choice(kinds):
        case "text":
            return "".join(rng.choice("ab \"'\\\n\t{}[],=<>/é🙂") for _ in range(rng.randrange(9)))
        case "int":
            return rng.randint(-9, 999)
        case "float":
            return rng.choice([0.5, -1.25, 1e300, 3.0])
        case "bool":
            return rng.random() < 0.5
        case "list":
            return [random_value(rng, depth + 1) for _ in range(rng.randrange(3))]
        case "object":
            return {
                rng.choice(WORDS): random_value(rng, depth + 1) for _ in range(rng.randrange(3))
            }
        case _:
            return None
