"""What a head is said to take is what it takes once it is loaded."""

from pathlib import Path

import pytest

from draftwerk.model.checkpoint.eagle_config import read_eagle_config
from draftwerk.model.checkpoint.hf_config import read_supported
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.checkpoint.mtp_config import MTP
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.draft_head.head_memory import page_bytes
from draftwerk.model.draft_head.head_windows import (
    CAPACITY,
    ROWS_SHARED,
    WAITING_MAX,
    HeadWindows,
)
from draftwerk.model.process.build import build
from draftwerk.model.process.drafters.drafter_table import draft_head_bytes
from draftwerk.model.step.layer_heads.layer_head import LayerHead
from tests.support.assistant_models import HEAD as ASSISTANT
from tests.support.assistant_models import AssistantOracle
from tests.support.eagle_models import HEAD, EagleOracle
from tests.support.mtp_models import MtpOracle
from tests.support.tiny_gguf import save_gguf
from tests.support.tiny_models import save_tiny


@pytest.mark.parametrize("kind", ["mtp", "eagle"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_pages_and_what_waits_are_counted(kind: str, dtype: str, tmp_path: Path) -> None:
    if kind == MTP:
        MtpOracle(tmp_path)
        wanted, layer, states = MTP, {**read_supported(tmp_path), "num_hidden_layers": 1}, 1
    else:
        EagleOracle(tmp_path)
        wanted, layer, states = str(tmp_path / HEAD), read_eagle_config(tmp_path / HEAD).layer, 3
    options = ModelOptions(
        **{"source": str(tmp_path), "dtype": dtype, "draft_head": wanted},
        **{"attention": "reference", "block_count": 4, "state_slots": 2},
    )
    head = build(options).parts.draft_head
    assert head is not None and isinstance(head.step, LayerHead)
    pages, windows = head.step._pages, HeadWindows(CAPACITY)
    held = pages.keys.nbytes + pages.values.nbytes
    assert page_bytes(layer, dtype, windows) == held
    waiting = (
        4
        * (CAPACITY + ROWS_SHARED)
        * WAITING_MAX
        * states
        * read_supported(tmp_path)["hidden_size"]
    )
    weights = draft_head_bytes(wanted, tmp_path, dtype) - held - waiting
    stored = (tmp_path / HEAD if kind == "eagle" else tmp_path) / "model.safetensors"
    assert 0 < weights < 4 * stored.stat().st_size


@pytest.mark.parametrize("ordered", [False, True])
def test_of_an_assistant_weights_alone_are_counted(ordered: bool, tmp_path: Path) -> None:
    AssistantOracle(tmp_path, ordered)
    head = tmp_path / ASSISTANT
    stored = (head / "model.safetensors").stat().st_size
    assert stored < draft_head_bytes(str(head), tmp_path, "bf16") < 3 * stored


def test_what_is_no_head_is_refused_and_none_takes_nothing(tmp_path: Path) -> None:
    save_tiny(tmp_path, "llama")
    assert (
        draft_head_bytes("auto", tmp_path, "bf16") == draft_head_bytes("off", tmp_path, "bf16") == 0
    )
    with pytest.raises(Refused, match="draft head mtp: the model's files hold no MTP layer"):
        draft_head_bytes(MTP, tmp_path, "bf16")
    (tmp_path / "empty").mkdir()
    with pytest.raises(Refused, match=r"draft head .*: it has no config\.json"):
        draft_head_bytes(str(tmp_path / "empty"), tmp_path, "bf16")
    save_gguf(tmp_path / "drafter.gguf", "llama", "Q8_0")
    with pytest.raises(Refused, match=r"drafter\.gguf: of drafters in a GGUF, DFlash"):
        draft_head_bytes(str(tmp_path / "drafter.gguf"), tmp_path, "bf16")
    file = tmp_path / "head.safetensors"
    file.write_bytes(bytes(50))
    assert draft_head_bytes(str(file), tmp_path, "bf16") == 100
