"""The table of approximations: all that trades exactness, asked for by name and shown as such.

    --approximate NAME[:key=value,...]    of the server, for every request
    a field of a request                  where the row names one

A new one is the file that computes it, and a row here. Settings, the `system_fingerprint`, replies,
`/v1/capabilities`, the page and `draftwerk doctor` follow the table. With one approximation a seed
still gives one text: in any company, after any cut, on every instruction set.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct

from draftwerk.cache.pages.kv_formats import KV_FORMATS, NATIVE_KV_FORMATS
from draftwerk.speculative.requests.declared_segments import RATIO, RULE, Blend, RuleName

ApproximatedPart = Literal["weights", "kv", "attention", "reuse"]
"""The parts that an approximation applies to."""
ParameterValue = str | int | float


class AppliedApproximation(Struct, frozen=True):
    """An approximation that a text is computed with."""

    name: str
    parameters: dict[str, ParameterValue] = {}

    def __str__(self) -> str:
        """Return it as it is asked for: NAME:key=value,..."""
        given = ",".join(f"{key}={value}" for key, value in self.parameters.items())
        return f"{self.name}:{given}" if given else self.name


class NoParameters(Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of an approximation that has none."""


class BlendParameters(Struct, frozen=True, forbid_unknown_fields=True):
    """By which rule segments are reused."""

    rule: RuleName = RULE
    ratio: float = RATIO


class WindowParameters(Struct, frozen=True, forbid_unknown_fields=True):
    """The window that a token sees, in positions."""

    size: Annotated[int, Meta(ge=256, le=2**20)] = 1024
    """The last ones, its own among them."""
    sinks: Annotated[int, Meta(ge=128, le=2**16, multiple_of=128)] = 128
    """The first ones, in whole tiles of the kernels."""


class Conflict(NamedTuple):
    """A setting that an approximation cannot be combined with."""

    setting: str
    allowed: tuple[object, ...]
    """The values that it may have."""
    reason: str


class Approximation(NamedTuple):
    """All that the rest of the program knows of an approximation."""

    name: str
    part: ApproximatedPart
    meaning: str
    """The exactness that is lost, in one line."""
    parameters: type[Struct] = NoParameters
    sets: tuple[str, str] | None = None
    """A setting and its value that ask for the same."""
    request_field: str = ""
    """The field of a request that asks for it, where the server does not."""
    conflicts: tuple[Conflict, ...] = ()


ONLY_CPU = Conflict("device", ("auto", "cpu"), "the native kernels of a CPU compute it")
ONLY_GPU = Conflict("device", ("auto", "cuda"), "the kernels of a GPU compute it")
ONLY_OWN = Conflict("backend", ("auto",), "backend transformers keeps its own keys and values")

WINDOW = "window"
ONLY_NATIVE = Conflict("attention", ("auto", "native"), "the native kernels compute it")
RANKS = ("pipeline_parallel", "tensor_parallel")
ONLY_WHOLE = tuple(
    Conflict(name, (1,), "the ranks of a divided model share all positions") for name in RANKS
)
ONE_RANK = tuple(Conflict(name, (1,), "keys are learnt by a model that is whole") for name in RANKS)
ONLY_OWN_BLOCKS = tuple(
    Conflict(name, (0, "", ()), "what others read keeps all positions")
    for name in ("kv_store", "kv_peers", "kv_listen", "draft")
)

APPROXIMATIONS = (
    Approximation(
        "blend",
        "reuse",
        "passages read elsewhere are reused wherever they stand in a prompt (CacheBlend)",
        BlendParameters,
        request_field="blend",
    ),
    *(
        Approximation(
            f"kv-{row.name}",
            "kv",
            row.meaning,
            sets=("kv_dtype", row.name),
            conflicts=(
                ONLY_CPU if row.name in NATIVE_KV_FORMATS else ONLY_GPU,
                ONLY_OWN,
                *(ONE_RANK if row.learns else ()),
            ),
        )
        for row in KV_FORMATS.values()
    ),
    Approximation(
        WINDOW,
        "attention",
        "a token sees the text's beginning and a window, so that texts need no end (StreamingLLM)",
        WindowParameters,
        conflicts=(ONLY_CPU, ONLY_OWN, ONLY_NATIVE, *ONLY_WHOLE, *ONLY_OWN_BLOCKS),
    ),
)
NAMES = {row.name: row for row in APPROXIMATIONS}


def read_approximation(words: str) -> AppliedApproximation:
    """Return what NAME[:key=value,...] asks for, defaults included. Raises ValueError."""
    name, _, given = words.partition(":")
    if (row := NAMES.get(name)) is None:
        raise ValueError(f"{name!r} is none of {', '.join(NAMES)}")
    values = dict[str, str]()
    for pair in filter(None, given.split(",")):
        key, _, value = pair.partition("=")
        values[key.strip()] = value.strip()
    try:
        return _applied(row, msgspec.convert(values, row.parameters, strict=False))
    except msgspec.ValidationError as error:
        raise ValueError(f"{name}: {error}") from None


def read_approximations(asked: Sequence[str]) -> tuple[AppliedApproximation, ...]:
    """Return what a server is asked for. Raises ValueError, of a row that requests ask for too."""
    found = tuple(map(read_approximation, asked))
    names = [each.name for each in found]
    for name in names:
        if field := NAMES[name].request_field:
            raise ValueError(f"{name} is asked for by a request, with `{field}`")
        if names.count(name) > 1:
            raise ValueError(f"{name} is asked for twice")
    return found


def approximate_settings(asked: Sequence[str], settings: Mapping[str, Any]) -> dict[str, str]:
    """Return settings that approximations stand for. Raises ValueError for what cannot be combined.

    `settings` are all others, by name.
    """
    found: dict[str, str] = {}
    for name in (each.name for each in read_approximations(asked)):
        for conflict in NAMES[name].conflicts:
            if settings[conflict.setting] not in conflict.allowed:
                value = settings[conflict.setting]
                raise ValueError(
                    f"{name} cannot be combined with {conflict.setting} {value}: {conflict.reason}"
                )
        if (sets := NAMES[name].sets) is None:
            continue
        setting, value = sets
        before = found.get(setting, settings[setting])
        if before not in ("auto", value):
            raise ValueError(f"{name} cannot be combined with {setting} {before}")
        found[setting] = value
    return found


def served_approximations(
    asked: Sequence[str], settings: Mapping[str, Any]
) -> tuple[AppliedApproximation, ...]:
    """Return what all texts of a server are computed with, in the order of the table."""
    found = {each.name: each for each in read_approximations(asked)}
    for row in APPROXIMATIONS:
        if row.sets is not None and settings[row.sets[0]] == row.sets[1]:
            found.setdefault(row.name, AppliedApproximation(row.name))
    return tuple(found[name] for name in NAMES if name in found)


def of_request(blend: Blend | None) -> tuple[AppliedApproximation, ...]:
    """Return what one request is computed with, beside what all are."""
    if blend is None:
        return ()
    return (_applied(NAMES["blend"], BlendParameters(blend.rule, blend.ratio)),)


def fingerprint_words(served: Iterable[AppliedApproximation]) -> tuple[str, ...]:
    """Return what tells texts with approximations from others, where no other setting does."""
    return tuple(str(each) for each in served if NAMES[each.name].sets is None)


def _applied(row: Approximation, parameters: Struct) -> AppliedApproximation:
    return AppliedApproximation(row.name, msgspec.structs.asdict(parameters))
