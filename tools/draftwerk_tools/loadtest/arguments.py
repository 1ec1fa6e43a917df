"""A command line made from option structs, so that each option is written down once."""

import argparse
from typing import Annotated, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, Meta, Struct

T = TypeVar("T", bound=Struct)


def add_options(parser: argparse.ArgumentParser, kind: type[Struct], skip: tuple[str, ...]) -> None:
    """Add one `--option` per field, with its description and default."""
    hints = get_type_hints(kind, include_extras=True)
    for field in msgspec.structs.fields(kind):
        if field.name not in skip:
            default = field.default if field.default is not NODEFAULT else None
            _add(parser, field.name, hints[field.name], default)


def read_options(namespace: argparse.Namespace, kind: type[T]) -> T:
    """Check what was given against the types; `ValueError` names the option at fault."""
    fields = {field.name for field in msgspec.structs.fields(kind)}
    given = {name: value for name, value in vars(namespace).items() if name in fields}
    try:
        return msgspec.convert(given, type=kind, strict=False)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        name = where.strip("`").partition("[")[0].replace("_", "-")
        raise ValueError(f"--{name}: {what.lower()}") from error


def _add(parser: argparse.ArgumentParser, name: str, hint: object, default: object) -> None:
    flag = "--" + name.replace("_", "-")
    text = _description(hint).replace("%", "%%")
    if _plain(hint) is bool:
        action = argparse.BooleanOptionalAction
        parser.add_argument(flag, action=action, default=argparse.SUPPRESS, help=text)
    elif get_origin(_plain(hint)) is list:
        parser.add_argument(flag, action="append", default=argparse.SUPPRESS, help=text)
    else:
        shown = text if default in (None, "") else f"{text} (default {default})"
        parser.add_argument(flag, default=argparse.SUPPRESS, help=shown, metavar="X")


def _plain(hint: object) -> object:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _description(hint: object) -> str:
    metas = [meta for meta in get_args(hint)[1:] if isinstance(meta, Meta)]
    return metas[0].description or "" if metas else ""
