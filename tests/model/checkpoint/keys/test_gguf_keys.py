"""Keys under an architecture's name are obeyed, without effect, or refused by name."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.constants import Keys

from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.keys.tokenizer_keys import check_general_keys
from draftwerk.model.checkpoint.recommended import recommended, suppressed
from draftwerk.model.checkpoint.rope import rotary
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.speculative.parameters.defaults import SamplingDefaults
from tests.support.gguf_files import add_fields
from tests.support.tiny_gguf import described, save_gguf

SIZE, THETA, CONTEXT = 16, 10_000.0, 512
"""Of the tiny models."""


pytestmark = pytest.mark.usefixtures("no_tokenizer")


def config_of(
    tmp_path: Path,
    family: str = "qwen3",
    more: Callable[[gguf.GGUFWriter], None] = lambda _: None,
    **keys: Any,
) -> ModelConfig:
    """Return what is read of a file that has these keys, a dot for each two underscores, too."""

    def add(writer: gguf.GGUFWriter) -> None:
        add_fields(writer, {f"{family}.{key.replace('__', '.')}": keys[key] for key in keys})
        more(writer)

    path = save_gguf(tmp_path / "m.gguf", family, "F32", more=add)
    out = tmp_path / "out"
    described(path, out)
    return read_config(out)


REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "an order of time": ("qwen3.attention.causal 0", {"attention__causal": 0}),
    "a scale": ("qwen3.attention.scale 0.5", {"attention__scale": 0.5}),
    "a cap": ("qwen3.attn_logit_softcapping 50.0", {"attn_logit_softcapping": 50.0}),
    "a window": ("qwen3.attention.sliding_window 64", {"attention__sliding_window": 64}),
    "values of another size": ("attention.value_length 8 is not", {"attention__value_length": 8}),
    "a share of YaRN": (
        "rope.scaling.yarn_ext_factor 0.5",
        {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0}
        | {"rope__scaling__yarn_ext_factor": 0.5},
    ),
    "a factor on plain angles": (
        "rope.scaling.attn_factor 1.5",
        {"rope__scaling__attn_factor": 1.5},
    ),
    "alpha": ("qwen3.rope.scaling.alpha 50.0", {"rope__scaling__alpha": 50.0}),
    "a word of no list": ("qwen3.attention.twist 3", {"attention__twist": 3}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_obeyed_is_refused_by_its_key(name: str, tmp_path: Path) -> None:
    said, keys = REFUSED[name]
    with pytest.raises(Refused, match=said):
        config_of(tmp_path, **keys)


YARN = {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0}
RULES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a factor without a type": (
        {"rope__scaling__factor": 4.0},
        {"rope_type": "linear", "factor": 4.0},
    ),
    "an old name of it": ({"rope__scale_linear": 4.0}, {"rope_type": "linear", "factor": 4.0}),
    "a factor of no rule": (
        {"rope__scaling__type": "none", "rope__scaling__factor": 4.0},
        {"rope_type": "default"},
    ),
    "turns": (
        {**YARN, "rope__scaling__yarn_beta_fast": 8.0, "rope__scaling__yarn_beta_slow": 2.0},
        {"rope_type": "yarn", "factor": 4.0, "beta_fast": 8.0, "beta_slow": 2.0},
    ),
    "factors on attention": (
        {**YARN, "rope__scaling__attn_factor": 1.5, "rope__scaling__yarn_attn_factor": 2.0},
        {
            **{"rope_type": "yarn", "factor": 4.0},
            "attention_factor": 3.0 * (1 + 0.1 * np.log(4.0)),
        },
    ),
    "a multiplier": (
        {**YARN, "rope__scaling__yarn_log_multiplier": 1.0},
        {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.0},
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_of_rotation_is_that_of_the_keys(name: str, tmp_path: Path) -> None:
    keys, rule = RULES[name]
    config = config_of(tmp_path, **keys)
    frequencies, magnitude = rotary(SIZE, THETA, rule, CONTEXT)
    assert config.rope_inverse_frequencies == frequencies
    assert config.rope_magnitude == pytest.approx(magnitude, rel=1e-6)


def test_divisors_beside_yarn_are_refused(tmp_path: Path) -> None:
    def add(writer: gguf.GGUFWriter) -> None:
        writer.add_tensor("rope_freqs.weight", np.ones(SIZE // 2, np.float32))

    with pytest.raises(Refused, match=r"rope_freqs.weight beside rope.scaling.factor"):
        config_of(tmp_path, more=add, **YARN)


@pytest.mark.parametrize("key", ["adapter.type", "clip.has_vision_encoder"])
def test_a_file_that_is_no_model_is_refused(key: str, tmp_path: Path) -> None:
    with pytest.raises(Refused, match=f"{key} is not supported"):
        config_of(tmp_path, more=lambda writer: writer.add_string(key, "x"))


WITHOUT_EFFECT: dict[str, Any] = {
    "rope__scaling__finetuned": True,
    "attention__causal": True,
    "attention__sliding_window": CONTEXT,
    "expert_count": 0,
}


@pytest.mark.parametrize("key", WITHOUT_EFFECT)
def test_a_key_that_asks_for_nothing_is_taken(key: str, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    plain = config_of(tmp_path / "plain")
    assert config_of(tmp_path, **{key: WITHOUT_EFFECT[key]}) == plain


def test_a_factor_of_longrope_is_the_magnitude(tmp_path: Path) -> None:
    rule = {
        **{"rope_type": "longrope", "rope_theta": THETA, "original_max_position_embeddings": 64},
        **{"short_factor": [1.0] * 8, "long_factor": [2.0] * 8},
    }

    def add(writer: gguf.GGUFWriter) -> None:
        writer.add_rope_scaling_attn_factors(1.25)

    path = save_gguf(tmp_path / "m.gguf", "phi3", "F32", more=add, rope_parameters=rule)
    out = tmp_path / "out"
    described(path, out)
    assert read_config(out).rope_magnitude == 1.25


def constants(names: type) -> Iterator[str]:
    for value in vars(names).values():
        if isinstance(value, str) and value.startswith(("general.", "tokenizer.")):
            yield value.replace("{id}", "0").replace("{name}", "other")


KNOWN = [*constants(Keys.General), *constants(Keys.Tokenizer)]


@pytest.mark.parametrize("key", KNOWN)
def test_every_key_of_the_library_has_a_row(key: str) -> None:
    check_general_keys({key: ""} if key in OFF_ALONE else {key: "x"})


OFF_ALONE = {
    *("tokenizer.ggml.add_sep_token", "tokenizer.ggml.precompiled_charsmap"),
    "tokenizer.rwkv.world",
}
"""Those that are served where they are empty."""
STRANGE = {
    "general.twist": 1,
    "general.sampling": 1,
    "tokenizer.ggml.twist": 1,
    "tokenizer.ggml.add_sep_token": True,
    "tokenizer.ggml.precompiled_charsmap": [1, 2],
}


@pytest.mark.parametrize("key", STRANGE)
def test_a_key_beside_the_architectures_is_known_or_refused(key: str) -> None:
    with pytest.raises(Refused, match=f"{key} "):
        check_general_keys({key: STRANGE[key]})


def test_what_a_file_recommends_is_obeyed_or_refused_by_its_key(tmp_path: Path) -> None:
    def bars(writer: gguf.GGUFWriter) -> None:
        writer.add_array("tokenizer.ggml.suppress_tokens", [3, 5])
        writer.add_float32("general.sampling.xtc_threshold", 0.1)

    config_of(tmp_path, more=bars)
    assert suppressed(tmp_path / "out", 97) == (3, 5)
    assert recommended(tmp_path / "out") == (SamplingDefaults(), "")
    other = tmp_path / "other"
    other.mkdir()
    config_of(other, more=lambda writer: writer.add_float32("general.sampling.mirostat_x", 1.0))
    with pytest.raises(Refused, match=r"general.sampling.mirostat_x 1.0.*--generation-config none"):
        recommended(other / "out")


def test_a_file_without_an_order_of_time_makes_vectors(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    assert not config_of(tmp_path / "plain").graph.sees_all
    assert config_of(tmp_path, attention__causal=False).graph.sees_all
