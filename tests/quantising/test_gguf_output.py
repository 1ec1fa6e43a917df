"""Files that are written: what is read back of them, and what is refused."""

import json
from functools import partial
from pathlib import Path
from shutil import copytree

import gguf
import numpy as np
import pytest
import torch
from msgspec.structs import asdict
from torch import Tensor

from draftwerk.model.checkpoint.files.gguf_shards import read_gguf
from draftwerk.model.checkpoint.hub import embedded, locate
from draftwerk.model.checkpoint.info import read_info
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.checkpoint.recommended import recommended
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.weights import AnyWeights
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk_tools.quantising import gguf_output
from draftwerk_tools.quantising.gguf_output import kinds_of, write_quantised
from draftwerk_tools.quantising.mixes import MIXES
from draftwerk_tools.quantising.sources import Source, copy_fields, open_source
from draftwerk_tools.quantising.tokenizer_fields import splitting
from tests.support.small_tokenizers import byte_level
from tests.support.small_tokenizers import saved as save_tokenizer
from tests.support.tiny_gguf import save_gguf
from tests.support.tiny_models import save_tiny

LONG = {"original_max_position_embeddings": 8192}
"""Of Llama 3.1; a GGUF cannot say another."""
WIDE = {"hidden_size": 64, "intermediate_size": 256, "head_dim": 16}


def save_words(directory: Path, **config) -> None:
    """Put the default model's tokenizer beside a model of as many tokens."""
    source = locate(None).directory
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (directory / name).write_bytes((source / name).read_bytes())


def saved(directory: Path, family: str = "llama", **sizes) -> Path:
    """Save a tiny model with a small tokenizer: other programs read a large one for seconds."""
    tokenizer = byte_level()
    save_tiny(directory, family, **{"vocab_size": tokenizer.get_vocab_size(), **WIDE, **sizes})
    save_tokenizer(tokenizer, directory)
    return directory


def saved_with_words(directory: Path) -> Path:
    """Save a tiny model with the default model's tokenizer."""
    save_tiny(directory, "llama", **{"vocab_size": read_info(locate(None)).vocab_size, **WIDE})
    save_words(directory)
    return directory


def written(source: Path, kind: str, output: Path) -> Path:
    write_quantised(opened(source), kind, output, lambda _: None)
    return output


def opened(path: Path) -> Source:
    return open_source(locate(str(path)))


def tensors_of(weights: AnyWeights) -> list[Tensor]:
    layers = [
        getattr(layer, name)
        for layer in weights.layers
        for name in type(layer).__dataclass_fields__
        if getattr(layer, name) is not None
    ]
    return [weights.embedding, weights.norm, weights.lm_head, *layers]  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("llama", {}),
        ("llama", {"tie_word_embeddings": True, "rope": "llama3", "rope_changes": LONG}),
        ("llama", {"rope": "linear"}),
        ("qwen2", {"rope": "yarn"}),
        ("qwen3", {}),
        ("granite", {}),
    ],
)
def test_sixteen_bits_are_the_model_of_the_safetensors(family: str, changes, tmp_path: Path):
    source = saved(tmp_path / "source", family, **changes)
    output = written(source, "BF16", tmp_path / "out.gguf")
    found, expected = load(str(output), None), load(str(source), None)
    pairs = zip(tensors_of(found.weights), tensors_of(expected.weights), strict=True)
    assert all(torch.equal(ours, theirs.bfloat16()) for ours, theirs in pairs)
    ours, theirs = found.config, expected.config
    assert ours.rope_inverse_frequencies == theirs.rope_inverse_frequencies
    assert ours.rope_magnitude == theirs.rope_magnitude
    assert (ours.context_max, ours.norm_eps) == (theirs.context_max, theirs.norm_eps)
    assert asdict(ours.graph) == pytest.approx(asdict(theirs.graph))


SINKS = {"swiglu_limit": 7.0, "sliding_window": 17}
YARN = {"rope_type": "yarn", "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}
YARN |= {"original_max_position_embeddings": 64, "rope_theta": 150_000.0}


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        *((name, {}) for name in ("qwen3_moe", "qwen2_moe", "mixtral", "olmoe", "granitemoe")),
        ("granitemoeshared", {}),
        ("gpt_oss", SINKS),
        ("gpt_oss", {**SINKS, "rope_parameters": YARN}),
    ],
)
def test_experts_are_those_of_the_safetensors(family: str, changes, tmp_path: Path):
    source = saved(tmp_path / "source", family, num_key_value_heads=2, **changes)
    output = written(source, "BF16", tmp_path / "out.gguf")
    found, expected = load(str(output), None), load(str(source), None)
    for ours, theirs in zip(found.weights.layers, expected.weights.layers, strict=True):
        for name in ("router", "gate_up", "down"):
            pairs = zip(getattr(ours.experts, name), getattr(theirs.experts, name), strict=True)
            assert all(torch.equal(one, other.bfloat16()) for one, other in pairs), name
        if family == "qwen2_moe":
            assert torch.equal(ours.experts.shared_gate, theirs.experts.shared_gate.bfloat16())
        if theirs.gate_up is not None:
            assert torch.equal(ours.gate_up, theirs.gate_up.bfloat16())
            assert torch.equal(ours.down, theirs.down.bfloat16())
        assert torch.equal(ours.qkv, theirs.qkv.bfloat16())
        if family == "gpt_oss":
            assert torch.equal(ours.sinks, theirs.sinks.bfloat16())
            for name in ("router_bias", "gate_up_bias", "down_bias"):
                one, other = (getattr(each.experts, name) for each in (ours, theirs))
                assert torch.equal(one, other.bfloat16()), name
    assert found.config.rotaries == expected.config.rotaries
    assert asdict(found.config.graph) == pytest.approx(asdict(expected.config.graph))
    assert found.config.experts == expected.config.experts
    assert found.config.layers == expected.config.layers
    again = written(output, "Q8_0", tmp_path / "again.gguf")
    kinds = {each.name: each.tensor_type.name for each in gguf.GGUFReader(again).tensors}
    assert kinds["blk.1.ffn_down_exps.weight"] in ("Q8_0", "F16")
    assert kinds["blk.0.ffn_gate_inp.weight"] == "F32"
    assert load(str(again), None).config.experts == expected.config.experts


def test_biases_of_experts_stay_numbers(tmp_path: Path):
    source = save_gguf(tmp_path / "m.gguf", "gpt_oss", "F32")
    kinds = kinds_of(MIXES["Q8_0"], _source_of(source))
    assert kinds["blk.0.ffn_up_exps.bias"] == kinds["blk.0.ffn_gate_inp.weight"] == "F32"
    assert kinds["blk.0.ffn_up_exps.weight"] == "Q8_0"


def _source_of(path: Path) -> Source:
    tensors = gguf.GGUFReader(path).tensors
    shapes = {each.name: tuple(map(int, each.shape[::-1])) for each in tensors}
    return Source("m", "gpt-oss", 4, False, shapes, lambda name: np.zeros(1), lambda writer: None)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("qwen3_moe", {"norm_topk_prob": False}),
        ("qwen3_moe", {"mlp_only_layers": [1]}),
        ("olmoe", {"norm_topk_prob": True}),
        ("gpt_oss", {"swiglu_limit": 1.5}),
        ("gpt_oss", {**SINKS, "rope_parameters": {**YARN, "attention_factor": 1.3}}),
    ],
)
def test_what_no_metadata_say_is_refused(family: str, changes, tmp_path: Path):
    with pytest.raises(Refused, match=r"a GGUF cannot say the (experts|switches) of this"):
        opened(saved(tmp_path / "source", family, **changes))


def test_every_tensor_is_gguf_pys(tmp_path: Path):
    """Matrices in the types of the mix, near the values; vectors as they are."""
    source = opened(saved(tmp_path / "source", tie_word_embeddings=True))
    output = tmp_path / "out.gguf"
    write_quantised(source, "Q4_K_M", output, lambda _: None)
    reader = gguf.GGUFReader(output)
    kinds = {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}
    assert kinds["token_embd.weight"] == "Q8_0"
    assert kinds["blk.0.attn_q.weight"] == "Q5_0"
    assert kinds["blk.1.ffn_down.weight"] == "Q6_K"
    for tensor in reader.tensors:
        values = source.values(tensor.name)
        found = gguf.dequantize(tensor.data, tensor.tensor_type).reshape(values.shape)
        assert np.square(found - values).mean() <= 0.01 * np.square(values).mean()
    assert reader.fields["general.file_type"].contents() == gguf.LlamaFileType.MOSTLY_Q4_K_M


def test_tokens_templates_and_ends_are_the_sources(tmp_path: Path):
    source = saved_with_words(tmp_path / "source")
    (source / "generation_config.json").write_text('{"eos_token_id": [2, 0], "temperature": 0.25}')
    location = locate(str(written(source, "Q8_0", tmp_path / "out.gguf")))
    ours, theirs = (TextTokenizer(path) for path in (location.directory, source))
    chat = [{"role": "user", "content": "What is a GPU? 🦊 日本語 1234\n\n\tx"}]
    text = theirs.render_chat(chat)
    assert ours.render_chat(chat) == text
    assert ours.encode_continuation(text) == theirs.encode_continuation(text)
    info = read_info(location)
    assert info.eos_token_ids == (2, 0)
    assert (info.stored_format, info.file_format) == ("stored", "Q8_0")


def test_what_a_model_recommends_goes_along(tmp_path: Path):
    source = saved_with_words(tmp_path / "source")
    said = {"temperature": 0.25, "top_k": 40}
    (source / "generation_config.json").write_text(json.dumps(said))
    output = written(source, "Q8_0", tmp_path / "out.gguf")
    assert recommended(locate(str(output)).directory)[0].given() == said


def test_tokens_are_those_that_other_programs_read(tmp_path: Path):
    """The fields of llama.cpp, as the default model's file has them."""
    output = written(saved_with_words(tmp_path / "source"), "Q8_0", tmp_path / "out.gguf")
    fields, original = gguf.GGUFReader(output).fields, read_gguf(embedded()).fields
    for name in ("model", "tokens", "merges", "bos_token_id", "eos_token_id"):
        key = f"tokenizer.ggml.{name}"
        assert fields[key].contents() == original[key], name
    kinds = fields["tokenizer.ggml.token_type"].contents()
    assert kinds[:17] == original["tokenizer.ggml.token_type"][:17]


WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+|"
BYTES = {"type": "ByteLevel", "use_regex": True}


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        (BYTES, "gpt-2"),
        ({"pretokenizers": [{"type": "Digits"}, BYTES]}, "smollm"),
        ({"pattern": {"Regex": WORDS + r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+"}}, "llama-bpe"),
        ({"pattern": {"Regex": WORDS + r"\p{N}| ?[^\s\p{L}\p{N}]+"}}, "qwen2"),
        (None, "default"),
    ],
)
def test_how_text_is_split_has_llama_cpps_name(rule, name: str):
    assert splitting(json.dumps(rule)) == name


def test_a_gguf_keeps_its_metadata(tmp_path: Path):
    source = save_gguf(tmp_path / "source.gguf", "llama", "F32")
    output = tmp_path / "out.gguf"
    before = gguf.GGUFReader(source)
    model = opened_gguf(source, before)
    write_quantised(model, "Q4_0", output, lambda _: None)
    after = gguf.GGUFReader(output)
    for name, field in before.fields.items():
        if not name.startswith("GGUF.") and name != "general.file_type":
            assert after.fields[name].contents() == field.contents(), name
            assert after.fields[name].types[:2] == field.types[:2], name
    assert {each.name for each in after.tensors} == {each.name for each in before.tensors}


def opened_gguf(path: Path, reader: gguf.GGUFReader) -> Source:
    """Return a file's source without its tokenizer, which a tiny model has not."""
    values = {
        tensor.name: np.array(tensor.data, np.float32).reshape(tuple(reversed(tensor.shape)))
        for tensor in reader.tensors
    }
    return Source(
        name=path.stem,
        architecture="llama",
        layer_count=2,
        shares_keys=False,
        shapes={name: each.shape for name, each in values.items()},
        values=values.__getitem__,
        write_fields=partial(copy_fields, path),
    )


def test_what_cannot_be_written_is_refused(tmp_path: Path):
    source = opened(saved(tmp_path / "source"))
    output = tmp_path / "out.gguf"
    with pytest.raises(Refused, match=r"type 'Q4_X' is none of F32, BF16, Q8_0, "):
        write_quantised(source, "Q4_X", output, lambda _: None)
    with pytest.raises(Refused, match=r"out\.bin: the name of a GGUF file ends in \.gguf"):
        write_quantised(source, "Q4_0", tmp_path / "out.bin", lambda _: None)
    with pytest.raises(Refused, match="No such file or directory"):
        write_quantised(source, "Q4_0", tmp_path / "nowhere" / "out.gguf", lambda _: None)
    output.write_text("mine")
    with pytest.raises(Refused, match="it exists; remove it, or give another name"):
        write_quantised(source, "Q4_0", output, lambda _: None)
    assert output.read_text() == "mine"


def test_a_source_that_gguf_does_not_hold_is_refused(tmp_path: Path):
    directory = saved(tmp_path / "source")
    other = Path(copytree(directory, tmp_path / "other"))
    (other / "tokenizer.json").write_text('{"model": {"type": "Unigram", "vocab": []}}')
    with pytest.raises(Refused, match="a GGUF holds BPE, not Unigram"):
        written(other, "Q8_0", tmp_path / "out.gguf")
    (other / "tokenizer.json").unlink()
    with pytest.raises(Refused, match=r"tokenizer\.json: it cannot be read"):
        written(other, "Q8_0", tmp_path / "out.gguf")
    with pytest.raises(Refused, match="a GGUF cannot say rope scaling"):
        written(saved(tmp_path / "short", rope="llama3"), "Q8_0", tmp_path / "out.gguf")
    mistral = tmp_path / "mistral"
    save_tiny(mistral, "mistral")
    with pytest.raises(Refused, match="GGUF files have no MistralForCausalLM"):
        opened(mistral)


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = opened(saved(tmp_path / "source"))
    count = 0

    def failing(values, kind):
        nonlocal count
        count += 1
        if count == 5:
            raise OSError(28, "No space left on device")
        return gguf_output_quantised(values, kind)

    gguf_output_quantised = gguf_output.quantised
    monkeypatch.setattr(gguf_output, "quantised", failing)
    with pytest.raises(Refused, match=r"out\.gguf: No space left on device"):
        write_quantised(source, "Q4_0", tmp_path / "out.gguf", lambda _: None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


def test_widths_that_no_type_has_are_sixteen_bits(tmp_path: Path):
    source = saved(tmp_path / "source", hidden_size=80, intermediate_size=96, head_dim=20)
    reader = gguf.GGUFReader(written(source, "Q4_0", tmp_path / "out.gguf"))
    kinds = {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}
    assert kinds["blk.0.ffn_up.weight"] == "F16" and kinds["blk.0.ffn_down.weight"] == "Q4_0"
