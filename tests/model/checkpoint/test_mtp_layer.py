"""MTP layers that files bring: read where they are whole, and refused where they are not."""

from pathlib import Path

import pytest

from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.checkpoint.mtp_layer import read_mtp
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.process.build import build
from tests.support.changed_files import copied_head, put
from tests.support.mtp_models import MtpOracle
from tests.support.tiny_models import save_tiny


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    found = tmp_path_factory.mktemp("mtp")
    MtpOracle(found, "qwen3_5_text")
    return found


@pytest.fixture
def broken(whole, tmp_path) -> Path:
    """Return a checkpoint whose layer lacks a tensor."""
    copied_head(whole, tmp_path)
    put(tmp_path, {"mtp.layers.0.self_attn.k_norm.weight": None})
    return tmp_path


def test_a_file_without_one_has_none(tmp_path):
    save_tiny(tmp_path, "qwen3_5_text")
    assert read_mtp(tmp_path) is None


def test_one_that_lacks_a_tensor_is_refused_by_its_name(broken):
    with pytest.raises(Refused, match=r"lack model\.layers\.0\.self_attn\.k_norm\.weight"):
        read_mtp(broken)


@pytest.mark.parametrize("attention", ["auto", "padded"])
def test_it_drafts_where_it_is_asked_for_and_a_broken_one_is_refused(
    whole, broken, attention, tmp_path_factory
):
    def head_of(directory: Path, draft_head: str):
        options = ModelOptions(
            source=str(directory), draft_head=draft_head, attention=attention, state_slots=2
        )
        return build(options).parts.draft_head

    made = head_of(whole, "mtp")
    assert made is not None and made.windows is not None
    assert head_of(whole, "off") is None
    assert head_of(whole, "auto") is None
    with pytest.raises(Refused, match="the weights lack"):
        head_of(broken, "mtp")
    without = tmp_path_factory.mktemp("without")
    save_tiny(without, "qwen3_5_text")
    with pytest.raises(Refused, match="draft head mtp: the model's files hold no MTP layer"):
        head_of(without, "mtp")
