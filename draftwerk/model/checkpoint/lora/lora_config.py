"""`adapter_config.json`: which ranks and scales an adapter's modules have.

The rules are PEFT's: a pattern names the end of a module's name, and the first that fits counts.
"""

import re
from collections.abc import Mapping
from math import sqrt
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from draftwerk.model.checkpoint.files.json_file import read_json
from draftwerk.model.checkpoint.keys.adapter_keys import ADAPTER, LEAVES_BASE
from draftwerk.model.checkpoint.unsupported import Refused

CONFIG_FILE = "adapter_config.json"
RANK_MAX = 1024
ALL_MODULES = "all-linear"
LoraNumber = TypeVar("LoraNumber", int, float)
Listed = TypeVar("Listed", int, str)


class LoraConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of the config that are read."""

    peft_type: str
    r: int
    lora_alpha: float
    use_rslora: bool = False
    rank_pattern: dict[str, int] = {}
    alpha_pattern: dict[str, float] = {}
    bias: str = "none"
    init_lora_weights: bool | str = True
    target_modules: list[str] | str | None = None
    exclude_modules: list[str] | str | None = None
    layers_to_transform: list[int] | int | None = None
    layers_pattern: list[str] | str | None = None

    def adapts(self, module: str) -> bool:
        """Whether the config has an adapter for a module; null and "all-linear" are any."""
        targets = self.target_modules
        if _is_named(self.exclude_modules, module):
            return False
        if targets in (None, ALL_MODULES):
            return True
        if isinstance(targets, str) or self.layers_to_transform in (None, []):
            return _is_named(targets, module)
        return module in targets or (_is_named(targets, module) and self._has_layer(module))

    def _has_layer(self, module: str) -> bool:
        patterns = _listed(self.layers_pattern) or ["[^.]*"]
        places = (re.match(rf"(?:^|.*?\.){each}\.(\d+)\.", module) for each in patterns)
        place = next(filter(None, places), None)
        return place is not None and int(place[1]) in _listed(self.layers_to_transform)

    def rank(self, module: str) -> int:
        return _by_pattern(self.rank_pattern, module, self.r)

    def scale(self, module: str) -> float:
        """Return what a module's product is multiplied by."""
        alpha, rank = _by_pattern(self.alpha_pattern, module, self.lora_alpha), self.rank(module)
        return alpha / (sqrt(rank) if self.use_rslora else rank)


def _is_named(names: list[str] | str | None, module: str) -> bool:
    """Whether a list has the end of a module's name, or a pattern is all of it."""
    if isinstance(names, str):
        return bool(re.fullmatch(names, module))
    return any(module == each or module.endswith(f".{each}") for each in names or ())


def _listed(value: list[Listed] | Listed | None) -> list[Listed]:
    if isinstance(value, list):
        return value
    return [] if value in (None, "") else [value]


def _by_pattern(patterns: Mapping[str, LoraNumber], module: str, default: LoraNumber) -> LoraNumber:
    for pattern, value in patterns.items():
        if re.match(rf"(.*\.)?({pattern})$", module):
            return value
    return default


def read_lora_config(folder: Path) -> LoraConfig:
    """Return an adapter's config. Raises Refused, naming the file and the field."""
    path = folder / CONFIG_FILE
    found: dict[str, Any] | None = read_json(path)
    if found is None:
        raise Refused(f"{folder}: no {CONFIG_FILE}")
    ADAPTER.check(found, f"{path}: ")
    try:
        given = {name: value for name, value in found.items() if value is not None}
        config = msgspec.convert(given, LoraConfig, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(f"{path}: {error}") from None
    _check(path, config)
    return config


def _check(path: Path, config: LoraConfig) -> None:
    if config.peft_type != "LORA":
        raise Refused(f"{path}: peft_type {config.peft_type!r} is not supported, only 'LORA'")
    if config.bias != "none":
        raise Refused(f"{path}: bias {config.bias!r} is not supported, only 'none'")
    if str(config.init_lora_weights).lower() not in LEAVES_BASE:
        raise Refused(
            f"{path}: init_lora_weights {config.init_lora_weights!r} is not supported: its base "
            "model has other weights; save it as a plain LoRA"
        )
    for rank in (config.r, *config.rank_pattern.values()):
        if not 1 <= rank <= RANK_MAX:
            raise Refused(f"{path}: a rank of {rank} is not within 1 to {RANK_MAX}")
    names = (config.target_modules, config.exclude_modules)
    whole = [each for each in names if isinstance(each, str)]
    inner = [*config.rank_pattern, *config.alpha_pattern, *_listed(config.layers_pattern)]
    for pattern in (*whole, *inner):
        try:
            re.compile(pattern)
        except re.error as error:
            raise Refused(f"{path}: the pattern {pattern!r} cannot be read: {error}") from None
