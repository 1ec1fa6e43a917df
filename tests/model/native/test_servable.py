"""Formats that need the kernels are refused before a model is looked for."""

import pytest

from draftwerk.api.shared.config import load
from draftwerk.assembly.loading.model_infos import read_infos
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.native import servable
from draftwerk.model.native.build import NativeUnavailable
from draftwerk.model.native.servable import check_servable, may_use_gpu, own_format
from draftwerk.settings.setting_fields import ConfigError


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(progress: object = None) -> None:
        raise NativeUnavailable("no C++ compiler")

    monkeypatch.setattr(servable, "obtain", none)
    monkeypatch.setattr(servable.shutil, "which", lambda name: None)


@pytest.mark.usefixtures("without_kernels")
@pytest.mark.parametrize(
    ("attention", "dtype", "kv_dtype", "reason"),
    [
        ("auto", "int8", "auto", "dtype 'int8' needs the native kernels of a CPU: no C"),
        ("auto", "int4", "auto", "dtype 'int4' needs the native kernels"),
        ("auto", "bf16", "int8", "kv_dtype 'int8' needs the native kernels"),
        ("padded", "int8", "auto", "attention padded is not theirs"),
        ("native", "bf16", "auto", "attention native: no C"),
    ],
)
def test_a_format_of_the_kernels_is_refused_without_them(
    attention: str, dtype: str, kv_dtype: str, reason: str
) -> None:
    with pytest.raises(Refused, match=reason):
        check_servable("auto", attention, dtype, kv_dtype, print)


@pytest.mark.usefixtures("without_kernels")
def test_what_torch_serves_is_not_refused() -> None:
    for dtype in ("auto", "bf16", "fp32"):
        check_servable("cpu", "auto", dtype, "auto", print)
    assert own_format("stored", ("Q8_0",), "cpu", "auto", print) == "bf16"


@pytest.mark.usefixtures("without_kernels")
def test_where_a_gpu_may_serve_the_model_process_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    check_servable("cuda", "auto", "int8", "auto", print)
    assert may_use_gpu("cuda") and not may_use_gpu("auto")
    monkeypatch.setattr(servable.shutil, "which", lambda name: "/usr/bin/nvidia-smi")
    check_servable("auto", "auto", "int8", "auto", print)
    assert may_use_gpu("auto") and not may_use_gpu("cpu")


@pytest.mark.usefixtures("without_kernels")
def test_the_server_refuses_before_it_looks_for_the_model() -> None:
    settings = load({"dtype": "int8", "model": "/nowhere/at/all"}, {})
    with pytest.raises(ConfigError, match="needs the native kernels"):
        read_infos(settings, print)


def test_the_server_refuses_kernels_that_there_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTWERK_ISA", "abacus")
    monkeypatch.setattr(servable.shutil, "which", lambda name: None)
    for dtype in ("auto", "bf16", "int8"):
        with pytest.raises(ConfigError, match="DRAFTWERK_ISA=abacus: it is not one of avx2"):
            read_infos(load({"dtype": dtype}, {}), print)


def test_the_weights_own_format_is_served_where_the_kernels_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(servable, "obtain", lambda progress: None)
    monkeypatch.setattr(servable.shutil, "which", lambda name: None)
    kinds = ("Q4_K", "Q6_K")
    assert own_format("bf16", (), "auto", "auto", print) == "bf16"
    assert own_format("stored", kinds, "auto", "auto", print) == "stored"
    assert own_format("stored", kinds, "cuda", "auto", print) == "stored"
    assert own_format("stored", kinds, "cpu", "padded", print) == "bf16"
    lines: list[str] = []
    assert own_format("stored", (*kinds, "IQ1_S"), "auto", "auto", lines.append) == "bf16"
    assert own_format("stored", (*kinds, "IQ4_NL"), "cuda", "auto", lines.append) == "stored"
    assert lines == ["served as bf16: no kernel has products with IQ1_S"]


@pytest.mark.usefixtures("without_kernels")
def test_without_kernels_the_weights_are_served_in_bf16() -> None:
    assert own_format("stored", ("Q8_0",), "cpu", "auto", print) == "bf16"
