"""The table of drafters: a new kind is a file and a row, and each names what does not fit."""

import json
from pathlib import Path

import pytest

from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.process.drafters import (
    assistant_heads,
    dflash_heads,
    drafter_table,
    eagle_heads,
    mtp_heads,
)
from draftwerk.model.process.drafters.drafter_table import KINDS, draft_head_bytes
from draftwerk.speculative.sampling import Sampling
from tests.support.head_drafting import Drafting, texts
from tests.support.made_up_drafter import FILE, ROW
from tests.support.runners import make_runner_with_layer
from tests.support.tiny_models import VOCAB, save_tiny

GREEDY = Sampling(temperature=0.0)


def made_up(directory: Path, vocab_size: int) -> str:
    folder = directory / "counting"
    folder.mkdir(exist_ok=True)
    (folder / FILE).write_text(json.dumps({"vocab_size": vocab_size}), encoding="utf-8")
    return str(folder)


def test_each_row_names_the_file_that_binds_its_kind():
    modules = (mtp_heads, assistant_heads, dflash_heads, eagle_heads)
    assert [kind.module for kind in KINDS] == [each.__name__ for each in modules]
    assert all(callable(each.bind) for each in modules)


def test_a_new_kind_is_a_file_and_a_row(tmp_path, monkeypatch):
    save_tiny(tmp_path, "llama")
    head = made_up(tmp_path, VOCAB)
    with pytest.raises(Refused, match=r"it has no config\.json"):
        draft_head_bytes(head, tmp_path, "bf16")
    monkeypatch.setattr(drafter_table, "KINDS", [ROW, *KINDS])
    assert draft_head_bytes(head, tmp_path, "bf16") == 0
    drafting = Drafting(make_runner_with_layer(tmp_path, head, False, "fp32"))
    assert drafting.runner.parts.draft_head is not None
    assert drafting.runner.parts.draft_head.name == "a drafter that counts"
    drafted, _ = texts(drafting, GREEDY)
    assert drafted == texts(make_runner_with_layer(tmp_path, "off", False, "fp32"), GREEDY)[0]
    assert any(draft.tokens for draft, _ in drafting.drafts)
    with pytest.raises(Refused, match=r"draft head .*: config\.json: vocab_size is 7, and the"):
        draft_head_bytes(made_up(tmp_path, 7), tmp_path, "bf16")
