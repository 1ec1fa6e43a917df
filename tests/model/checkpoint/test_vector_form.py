"""What sentence-transformers' files and a GGUF say of vectors; what is not served is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.torch import save_file

from draftwerk.model.checkpoint.files.shards import SINGLE
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.info import read_info
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.vector_form import vector_form
from draftwerk.speculative.requests.pooling import VectorForm
from tests.support.tiny_gguf import save_gguf
from tests.support.tiny_models import save_tiny

CONFIG = {"hidden_size": 32}
MODULES = ["Transformer", "Pooling", "Normalize"]


def say(directory: Path, modules: list[str], **pooling: Any) -> None:
    """Write a checkpoint's files beside its weights, as sentence-transformers does."""
    rows = [
        {
            "idx": at,
            "name": str(at),
            "path": f"{at}_{kind}" if at else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for at, kind in enumerate(modules)
    ]
    (directory / "modules.json").write_text(json.dumps(rows))
    (directory / "1_Pooling").mkdir(exist_ok=True)
    (directory / "1_Pooling" / "config.json").write_text(json.dumps(pooling))


def modes(**on: bool) -> dict[str, Any]:
    names = ("cls_token", "mean_tokens", "max_tokens", "weightedmean_tokens", "lasttoken")
    found = {f"pooling_mode_{name}": on.get(name, False) for name in names}
    return {"word_embedding_dimension": 32, **found, "include_prompt": True}


def test_nothing_said_is_the_last_token() -> None:
    assert vector_form(Path("nowhere"), CONFIG) == VectorForm(width=32)


@pytest.mark.parametrize(
    ("pooling", "wanted"),
    [
        (modes(lasttoken=True), "last"),
        (modes(mean_tokens=True), "mean"),
        ({"embedding_dimension": 32, "pooling_mode": "lasttoken"}, "last"),
        ({"embedding_dimension": 32, "pooling_mode": "mean"}, "mean"),
    ],
)
def test_the_checkpoint_says_what_is_pooled(
    tmp_path: Path, pooling: dict[str, Any], wanted: str
) -> None:
    say(tmp_path, MODULES, **pooling)
    found = vector_form(tmp_path, CONFIG)
    assert (found.pooling, found.source) == (wanted, "1_Pooling/config.json")
    assert vector_form(tmp_path, CONFIG, "mean").source == "--pooling"


def test_prompts_come_with_the_model(tmp_path: Path) -> None:
    prompts = {"query": "Instruct: Find it\nQuery:", "document": ""}
    said = {"prompts": prompts, "default_prompt_name": None, "similarity_fn_name": "cosine"}
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(said))
    found = vector_form(tmp_path, CONFIG)
    assert (found.prompts, found.prompt_name) == (prompts, "")


@pytest.mark.parametrize(
    ("modules", "pooling", "said"),
    [
        (MODULES, modes(cls_token=True), "pooling 'cls_token'"),
        (MODULES, modes(mean_tokens=True, lasttoken=True), "pooling 'mean\\+last'"),
        (MODULES, {**modes(mean_tokens=True), "include_prompt": False}, "include_prompt false"),
        ([*MODULES[:2], "Dense"], modes(mean_tokens=True), "module Dense"),
    ],
)
def test_another_form_is_refused_unless_one_is_asked_for(
    tmp_path: Path, modules: list[str], pooling: dict[str, Any], said: str
) -> None:
    say(tmp_path, modules, **pooling)
    with pytest.raises(Refused, match=said):
        vector_form(tmp_path, CONFIG)
    assert vector_form(tmp_path, CONFIG, "last").pooling == "last"


def test_a_gguf_says_it_by_number() -> None:
    for number, wanted in ((1, "mean"), (3, "last"), (0, "last"), (4, "last"), (None, "last")):
        assert vector_form(Path("x"), {**CONFIG, "pooling_type": number}).pooling == wanted
    with pytest.raises(Refused, match="cls"):
        vector_form(Path("x"), {**CONFIG, "pooling_type": 2})


@pytest.mark.usefixtures("no_tokenizer", "own_cache")
def test_a_reranker_as_llama_cpp_writes_it(tmp_path: Path) -> None:
    def more(labels: list[str]) -> Callable[[gguf.GGUFWriter], None]:
        def add(writer: gguf.GGUFWriter) -> None:
            writer.add_pooling_type(gguf.PoolingType.RANK)
            writer.add_classifier_output_labels(labels)
            writer.add_string("tokenizer.chat_template.rerank", "{query} {document}")
            writer.add_tensor("cls.output.weight", np.ones((2, 64), np.float32))

        return add

    path = save_gguf(tmp_path / "m.gguf", "qwen3", "Q8_0", more=more(["yes", "no"]))
    directory = locate(str(path)).directory
    assert (directory / "rerank_template.txt").read_text() == "{query} {document}"
    assert read_info(locate(str(path))).vectors == VectorForm(width=64)
    path = save_gguf(tmp_path / "n.gguf", "qwen3", "Q8_0", more=more(["good", "bad"]))
    with pytest.raises(Refused, match="a classifier of good, bad"):
        locate(str(path))


@pytest.mark.parametrize(
    ("family", "class_name"), [("qwen3", "Qwen3ForCausalLM"), ("gemma3_text", "Gemma3TextModel")]
)
def test_a_model_saved_without_its_head_is_served(
    family: str, class_name: str, tmp_path: Path
) -> None:
    """As Qwen3-Embedding names the class with a head, and EmbeddingGemma that without."""
    model = save_tiny(tmp_path, family, tie_word_embeddings=True)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": [class_name]}))
    held = {name.removeprefix("model."): each for name, each in model.state_dict().items()}
    held.pop("lm_head.weight")
    save_file({name: each.bfloat16() for name, each in held.items()}, tmp_path / SINGLE)
    assert read_info(locate(str(tmp_path))).vectors == VectorForm(width=32)
    loaded = load(str(tmp_path), None).weights
    assert loaded.layers[0].qkv is not None
    assert loaded.lm_head is loaded.embedding
