"""Tokenizer files with a few values of others, or none."""

import random
from collections.abc import Generator
from copy import deepcopy
from typing import Any

Json = dict[str, Any]


def mutated(document: Json, rng: random.Random) -> Json:
    """Return a tokenizer with a few values of others, or none."""
    made = deepcopy(document)
    for _ in range(rng.randint(1, 3)):
        places = [*_places(made)]
        inside, key = rng.choice(places)
        other, its = rng.choice(places)
        match rng.randrange(5):
            case 0:
                inside[key] = deepcopy(other[its])
            case 1:
                inside[key] = rng.choice([None, -1, 2**40, "", [], {}, "🙂" * 999, True, 0.5])
            case 2 if isinstance(inside[key], int):
                inside[key] = rng.choice([-1, 2**31, 2**63, 10**6])
            case 3 if isinstance(inside, dict):
                inside[str(key) + "x"] = inside.pop(key)
            case _:
                del inside[key]
    return made


def _places(value: Any) -> Generator[tuple[Any, Any]]:
    keys = value if isinstance(value, dict) else range(len(value))
    for key in [*keys][:12]:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])
