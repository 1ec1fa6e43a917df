"""The types of official clients, walked beside the Structs that check requests."""

import collections.abc
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal, NotRequired, Required, TypeVar, Union

import typing_extensions
from msgspec import Struct, inspect
from pydantic import BaseModel

from draftwerk.api.requests.field_rows import rows_of
from draftwerk.api.shared.errors import MEDIA
from draftwerk.settings.field_faults import alternatives

WRAPPERS = (Required, NotRequired, typing_extensions.Required, typing_extensions.NotRequired)
LISTS = (list, tuple, set, collections.abc.Iterable, collections.abc.Sequence)


def fields_without_row(client: Any, body: type[Struct]) -> list[str]:
    """Return the paths of a client's fields, and of its kinds of objects, that a body's table has
    no row for: neither obeyed, nor without effect, nor refused by name."""
    return sorted(set(_unknown(client, [inspect.type_info(body)], "", set())))


def _unknown(
    client: Any, ours: list[inspect.Type], path: str, seen: set[tuple[Any, str]]
) -> Iterator[str]:
    """Yield what our types, of which a value at this path may be, have no row for."""
    flat = list(_flattened(ours))
    if any(isinstance(each, inspect.RawType | inspect.AnyType | inspect.DictType) for each in flat):
        return  # any object is taken here
    structs = [each.cls for each in flat if isinstance(each, inspect.StructType)]
    for record in _records(client):
        if (record, path) in seen:
            continue
        seen.add((record, path))
        kinds = _literals(_fields(record).get("type"))
        known = {*MEDIA}.union(*map(_kinds, structs))
        takers = [each for each in structs if _takes(each, kinds)]
        if not takers and not known.issuperset(kinds or [""]):
            yield f"{path} of the kind {', '.join(kinds) or record.__name__}"
        if not takers or not {*kinds}.isdisjoint(known):
            continue
        for name, given in _fields(record).items():
            yield from _unknown_field(name, given, takers, f"{path}.{name}".lstrip("."), seen)


def _unknown_field(
    name: str, client: Any, takers: list[type[Struct]], path: str, seen: set[tuple[Any, str]]
) -> Iterator[str]:
    found = [
        each.type for struct in takers for each in _info(struct).fields if each.encode_name == name
    ]
    tags = [_info(struct).tag_field for struct in takers]
    if name in tags or any(name in rows_of(struct) for struct in takers):
        return
    if not found:
        yield path
    else:
        yield from _unknown(client, found, path, seen)


def _info(struct: type[Struct]) -> inspect.StructType:
    found = inspect.type_info(struct)
    assert isinstance(found, inspect.StructType)
    return found


def _flattened(kinds: list[inspect.Type]) -> Iterator[inspect.Type]:
    for each in kinds:
        for kind in alternatives(each):
            match kind:
                case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
                    yield from _flattened([item])
                case _:
                    yield kind


def _kinds(struct: type[Struct]) -> collections.abc.Iterable[str]:
    """Return the values of `type` that have a row of their own."""
    return getattr(struct, "kinds", ())


def _takes(struct: type[Struct], kinds: list[str]) -> bool:
    """Whether an object of one of these values of `type` may be this one."""
    info = _info(struct)
    if info.tag_field == "type":
        return not kinds or info.tag in kinds
    types = [each.type for each in info.fields if each.encode_name == "type"]
    literals = [each for each in _flattened(types) if isinstance(each, inspect.LiteralType)]
    return not (kinds and literals) or any(
        kind in each.values for each in literals for kind in kinds
    )


def _literals(given: Any) -> list[str]:
    origin = typing.get_origin(given)
    if origin in (Literal, typing_extensions.Literal):
        return list(typing.get_args(given))
    if origin in (*WRAPPERS, Union, types.UnionType, typing.Annotated):
        return [value for each in typing.get_args(given) for value in _literals(each)]
    return []


def _fields(record: Any) -> dict[str, Any]:
    if issubclass(record, BaseModel):
        return {each.alias or name: each.annotation for name, each in record.model_fields.items()}
    return typing_extensions.get_type_hints(record, include_extras=True)


def _records(given: Any) -> Iterator[Any]:
    """Yield the objects that a type is made of: typed dictionaries, or pydantic's models."""
    given = getattr(given, "__value__", given)  # of a type alias
    origin, arguments = typing.get_origin(given), typing.get_args(given)
    if origin is None:
        if isinstance(given, type) and (
            typing_extensions.is_typeddict(given) or issubclass(given, BaseModel)
        ):
            yield given
    elif origin not in (Literal, dict, collections.abc.Mapping):
        for each in arguments:
            if not isinstance(each, TypeVar):
                yield from _records(each)
