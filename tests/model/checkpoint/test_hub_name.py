"""Names of models on a hub, and the files that they stand for."""

import pytest

from draftwerk.model.checkpoint.hub_name import HubName, gguf_models, hub_name, wanted_files
from draftwerk.model.checkpoint.unsupported import Refused

pytestmark = pytest.mark.fast
SPLIT = tuple(f"Q8_0/m-Q8_0-0000{part}-of-00002.gguf" for part in (1, 2))
GGUFS = ("README.md", "m-Q4_0.gguf", "m-Q4_K_M.gguf", "m-Q4_K_S.gguf", *SPLIT, "mmproj-F16.gguf")
TENSORS = ("config.json", "model.safetensors", "pytorch_model.bin", "run.py", "tokenizer.model")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("org/m", HubName("org/m")),
        ("org/m-GGUF:Q4_K_M", HubName("org/m-GGUF", tag="Q4_K_M")),
        ("hf.co/org/m-GGUF:latest", HubName("org/m-GGUF")),
        ("hf://org/m", HubName("org/m")),
        ("https://huggingface.co/org/m/", HubName("org/m")),
        ("org/m@v1.5:Q8_0", HubName("org/m", "v1.5", tag="Q8_0")),
        ("org/m/a/b-Q4_0.gguf", HubName("org/m", file="a/b-Q4_0.gguf")),
        ("https://hf.co/org/m/blob/main/b.gguf", HubName("org/m", file="b.gguf")),
        (
            "https://huggingface.co/org/m/resolve/v2/b.gguf?download=true",
            HubName("org/m", "v2", "b.gguf"),
        ),
    ],
)
def test_every_way_to_write_a_name(text: str, name: HubName):
    assert hub_name(text) == name
    assert hub_name(str(name)) == name


@pytest.mark.parametrize("text", ["m", "./org/m", "/org/m", "~/m", "a/b/c", "org/m:a:b", ""])
def test_what_is_no_name(text: str):
    assert hub_name(text) is None


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("org/m:Q4_K_M", ("m-Q4_K_M.gguf",)),
        ("org/m:q4_k_m", ("m-Q4_K_M.gguf",)),
        ("org/m:Q4_0", ("m-Q4_0.gguf",)),
        ("org/m", ("m-Q4_K_M.gguf",)),
        ("org/m:Q8_0", SPLIT),
        (f"org/m/{SPLIT[1]}", SPLIT),
        ("org/m/m-Q4_0.gguf", ("m-Q4_0.gguf",)),
    ],
)
def test_a_tag_is_a_file_with_all_its_parts(text: str, files: tuple[str, ...]):
    name = hub_name(text)
    assert name is not None
    assert wanted_files(name, GGUFS) == files


def test_safetensors_come_without_pickles_and_code():
    assert wanted_files(HubName("org/m"), TENSORS) == (
        "config.json",
        "model.safetensors",
        "tokenizer.model",
    )
    assert wanted_files(HubName("org/m", tag="Q4_0"), (*TENSORS, "m-q4_0.gguf")) == ("m-q4_0.gguf",)


@pytest.mark.parametrize(
    ("text", "held", "said"),
    [
        ("org/m:Q5_K", GGUFS, "which GGUF? it has Q8_0/m-Q8_0, m-Q4_0, m-Q4_K_M, m-Q4_K_S"),
        ("org/m:Q4_0", ("a-Q4_0.gguf", "b-Q4_0.gguf"), "Q4_0 may be a-Q4_0, b-Q4_0"),
        ("org/m/x.gguf", GGUFS, "no such file; it has"),
        ("org/m", ("README.md",), "neither safetensors nor a GGUF"),
        ("org/m", ("a-Q5_K.gguf", "b-Q6_K.gguf"), "which GGUF? it has a-Q5_K, b-Q6_K"),
    ],
)
def test_a_choice_that_is_none_is_refused_with_what_there_is(
    text: str, held: tuple[str, ...], said: str
):
    name = hub_name(text)
    assert name is not None
    with pytest.raises(Refused, match=text) as found:
        wanted_files(name, held)
    assert said in str(found.value)


def test_projectors_and_matrices_of_importance_are_no_models():
    assert gguf_models(("mmproj-m.gguf", "imatrix_x.gguf", "m.gguf")) == {"m": ("m.gguf",)}


def test_a_projector_is_fetched_by_its_own_name():
    name = hub_name("org/m/mmproj-F16.gguf")
    assert name is not None and name.is_tower
    assert wanted_files(name, GGUFS) == ("mmproj-F16.gguf",)
    with pytest.raises(Refused, match="no such file"):
        wanted_files(name._replace(file="mmproj-BF16.gguf"), GGUFS)
