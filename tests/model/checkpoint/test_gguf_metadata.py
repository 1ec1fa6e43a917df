"""Metadata of another kind than its key's is refused by the key, or read; nothing else happens."""

from pathlib import Path
from typing import Any

import gguf
import pytest
from gguf import GGUFValueType
from gguf.gguf_writer import GGUFValue

from draftwerk.model.checkpoint import gguf as gguf_file
from draftwerk.model.checkpoint.gguf_metadata import KINDS, checked
from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.unsupported import Refused
from tests.support import tiny_gguf
from tests.support.tiny_models import VOCAB, tiny_model

OTHERS: list[tuple[Any, GGUFValueType]] = [
    ("x", GGUFValueType.STRING),
    (0, GGUFValueType.UINT32),
    (0.5, GGUFValueType.FLOAT32),
    (2**63, GGUFValueType.UINT64),
    ([1, 2], GGUFValueType.ARRAY),
    (["x"], GGUFValueType.ARRAY),
]


def with_pieces(writer: gguf.GGUFWriter) -> dict[str, GGUFValue]:
    """Give a file a vocabulary of SentencePiece's; returns its metadata."""
    metadata = writer.kv_data[0]
    for key in [key for key in metadata if key.startswith("tokenizer.")]:
        del metadata[key]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", "</s>", *(f"w{n}" for n in range(VOCAB - 3))])
    writer.add_token_scores([-float(n) for n in range(VOCAB)])
    writer.add_token_types([2, 3, 3, *[1] * (VOCAB - 3)])
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_chat_template("{{ messages }}")
    return metadata


@pytest.mark.parametrize("family", ["llama", "phi3", "gemma4_text", "granitemoehybrid"])
def test_a_file(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {
        "tie_word_embeddings": True,
        **tiny_gguf.SIZES,
        **tiny_gguf.OWN_SIZES.get(family, {}),
    }
    model = tiny_model(family, **settings)
    monkeypatch.setattr(tiny_gguf, "tiny_model", lambda *given, **sizes: model)
    keys = list[str]()
    tiny_gguf.save_gguf(
        tmp_path / "m.gguf", family, "F32", more=lambda writer: keys.extend(with_pieces(writer))
    )
    refused = set[str]()
    for number, key in enumerate(keys):
        for value, kind in OTHERS:

            def more(writer: gguf.GGUFWriter) -> None:
                with_pieces(writer)[key] = GGUFValue(value, kind)  # noqa: B023

            path = tiny_gguf.save_gguf(tmp_path / f"{number}.gguf", family, "F32", more=more)
            try:
                gguf_file.describe(path, "m", tmp_path, lambda _: None)
                read_config(tmp_path)
            except Refused:
                refused.add(key)
            path.unlink()
    assert len(refused) > len(keys) / 2


@pytest.mark.parametrize("key", [*KINDS, "tokenizer.chat_template.tool_use", ".block_count"])
def test_a_field_is_named_with_both_kinds(key: str) -> None:
    wrong = {"number": "x", "text": 1, "list of numbers": ["x"], "list of texts": [1]}
    wanted = KINDS.get(key, ("text" if "template" in key else "number",))
    value = wrong[wanted[-1]]
    with pytest.raises(Refused, match=r" is a .*, not a "):
        checked(key, value, "llama")
