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
LoraNumber = TypeVar("LoraNumber", int, float)


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

    def rank(self, module: str) -> int:
        return _by_pattern(self.rank_pattern, module, self.r)

    def scale(self, module: str) -> float:
        """Return what a module's product is multiplied by."""
        alpha, rank = _by_pattern(self.alpha_pattern, module, self.lora_alpha), self.rank(module)
        return alpha / (sqrt(rank) if self.use_rslora else rank)


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
    for pattern in (*config.rank_pattern, *config.alpha_pattern):
        try:
            re.compile(pattern)
        except re.error as error:
            raise Refused(f"{path}: the pattern {pattern!r} cannot be read: {error}") from None
