"""Which kernels run, in words; a refusal is a mistake in the settings."""

from types import SimpleNamespace
from typing import Any

import pytest

from draftwerk.assembly import kernels
from draftwerk.assembly.kernels import describe
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.native.build import NativeUnavailable
from draftwerk.settings.setting_fields import ConfigError


def obtaining(monkeypatch: pytest.MonkeyPatch, found: Any) -> None:
    def obtain(progress: Any) -> Any:
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(kernels, "obtain", obtain)


def test_the_instruction_set_and_the_origin_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    obtaining(monkeypatch, SimpleNamespace(isa=SimpleNamespace(name="avx2"), origin="built here"))
    assert describe() == "avx2, built here"


def test_without_kernels_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    obtaining(monkeypatch, NativeUnavailable("no compiler"))
    assert describe() == "none: no compiler"
    obtaining(monkeypatch, Refused("an instruction set that this processor has not"))
    with pytest.raises(ConfigError, match="this processor has not"):
        describe()
