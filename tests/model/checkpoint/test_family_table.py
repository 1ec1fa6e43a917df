"""The table of families for people has every row that is served."""

from draftwerk.model.checkpoint.architectures import ARCHITECTURES, WRAPPED
from draftwerk.model.checkpoint.family_table import family_rows


def test_every_class_and_every_wrapper_is_listed_once() -> None:
    listed = [name for row in family_rows() for name in row.classes]
    assert sorted(listed) == sorted([*(row.hf_name for row in ARCHITECTURES), *WRAPPED])


def test_a_row_says_what_is_read_and_where_it_runs() -> None:
    rows = {row.classes[0]: row for row in family_rows()}
    llama, gemma = rows["LlamaForCausalLM"], rows["Gemma3ForCausalLM"]
    assert (llama.family, llama.files) == ("llama", "safetensors, GGUF (llama)")
    assert (llama.devices, gemma.devices) == ("CPU, GPU, ranks", "CPU")
    assert rows["Qwen3_5ForCausalLM"].drafts == "its MTP layer" and gemma.drafts == "a model"
    assert "window" in gemma.layers and llama.layers == "as Llama's"
    assert any(row.files == "safetensors" for row in rows.values()) == any(
        row.gguf is None for row in ARCHITECTURES
    )
