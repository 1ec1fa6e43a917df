"""Validation errors as sentences that name the field and the values it may have."""

import re
from typing import NamedTuple

import msgspec
from msgspec import inspect

# Of msgspec's own messages only the path is used.
PLACE = re.compile(r"at `(?:key` in `)?\$\.?([^`]*)`$")
MISSING = re.compile(r"missing required field `(\w+)`")
UNKNOWN = re.compile(r"unknown field `([^`]{1,80})")
STEP = re.compile(r"\w+|\[[^\]]*\]")


class ErrorDetails(msgspec.Struct, frozen=True):
    """The codes that Anthropic's clients go by: without what is named they go on by themselves."""

    error_code: str
    unsupported: tuple[str, ...]


class FieldFault(NamedTuple):
    """A fault in a sentence, and the field that is to blame."""

    message: str
    param: str | None = None
    code: str | None = None


def fault_of(message: str, struct: type[msgspec.Struct]) -> FieldFault:
    """Turn a validation error into a sentence; what is allowed comes from the field's own type."""
    found = PLACE.search(message)
    field = found[1] if found else ""
    missing = MISSING.search(message)
    if missing:
        path = f"{field}.{missing[1]}" if field else missing[1]
        return FieldFault(f"`{path}` is required.", path, "missing")
    unknown = UNKNOWN.search(message)
    if unknown:
        path = f"{field}.{unknown[1]}" if field else unknown[1]
        return FieldFault(f"`{path}` is not known to this server.", path, "unsupported")
    if not field:
        return FieldFault("The body must be a JSON object.", code="invalid")
    kinds = _kinds_at([inspect.type_info(struct)], STEP.findall(field))
    literal = [kind for kind in kinds if isinstance(kind, inspect.LiteralType)]
    if len(literal) == len(kinds) > 1:
        kinds = [inspect.LiteralType(tuple(value for kind in literal for value in kind.values))]
    words = " or ".join(dict.fromkeys(described(kind) for kind in kinds)) or "valid"
    return FieldFault(f"`{field}` must be {words}.", field, "invalid")


def _kinds_at(kinds: list[inspect.Type], steps: list[str]) -> list[inspect.Type]:
    """Return the types that the value at a path may have."""
    flat = [each for kind in kinds for each in alternatives(kind)]
    if not steps:
        return flat
    step, rest = steps[0], steps[1:]
    found: list[inspect.Type] = []
    for kind in flat:
        match kind:
            case inspect.StructType(tag_field=str(name), tag=tag) if name == step:
                found.append(inspect.LiteralType((str(tag),)))
            case inspect.StructType(fields=fields):
                found += [field.type for field in fields if field.encode_name == step]
            case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item) if (
                step.startswith("[")
            ):
                found.append(item)
            case inspect.DictType(value_type=value) if step.startswith("["):
                found.append(value)
            case _:
                pass
    return _kinds_at(found, rest)


def alternatives(kind: inspect.Type) -> list[inspect.Type]:
    """Return the members of a union, null aside, or the type itself."""
    match kind:
        case inspect.UnionType(types=types):
            return [each for each in types if not isinstance(each, inspect.NoneType)]
        case inspect.Metadata(type=inner):
            return alternatives(inner)
        case _:
            return [kind]


def described(kind: inspect.Type) -> str:
    """Return in words the values that a type allows."""
    match kind:
        case inspect.UnionType() | inspect.Metadata():
            return " or ".join(described(each) for each in alternatives(kind))
        case inspect.IntType():
            return "an integer" + _range(kind)
        case inspect.FloatType():
            return "a number" + _range(kind)
        case inspect.StrType(pattern=str(pattern)):
            return f"a string that matches {pattern}"
        case inspect.StrType(min_length=least, max_length=most):
            start = "a non-empty string" if least else "a string"
            return f"{start} of at most {most} characters" if most else start
        case (
            inspect.ListType(item_type=item, min_length=least, max_length=most)
            | inspect.VarTupleType(item_type=item, min_length=least, max_length=most)
        ):
            return f"a list of {items(least, most)}, each {described(item)}"
        case inspect.DictType(key_type=key, value_type=value, max_length=most):
            limit = f" of at most {most} entries" if most else ""
            return f"an object{limit} from {described(key)} to {described(value)}"
        case inspect.LiteralType(values=values):
            return "one of " + ", ".join(f'"{value}"' for value in values)
        case inspect.RawType() | inspect.AnyType():
            return "any JSON"
        case inspect.NoneType():
            return "null"
        case inspect.TupleType(item_types=()):
            return "an empty list"
        case inspect.BoolType():
            return "true or false"
        case inspect.StructType(fields=fields):
            return "an object with " + ", ".join(f"`{field.encode_name}`" for field in fields)
        case _:
            return "valid"


def items(least: int | None, most: int | None) -> str:
    """Return in words how many items a list may have."""
    if not most:
        return "items"
    return f"{least} to {most} items" if least else f"at most {most} items"


def _range(kind: inspect.IntType | inspect.FloatType) -> str:
    low = f" above {kind.gt}" if kind.gt is not None else ""
    low = f" from {kind.ge}" if kind.ge is not None else low
    high = f" to {kind.le}" if kind.le is not None else ""
    return low + high
