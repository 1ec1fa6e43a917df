"""A receipt that was changed is found out without a model, and the place is named."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwerk.api.openai.receipts.receipt import Receipt, ReceiptText, options_of, receipt_of
from draftwerk.api.openai.receipts.signing import Signer, signed
from draftwerk.api.openai.receipts.soundness import fault
from draftwerk.api.shared.ports import ReceiptPicture
from draftwerk.settings.setting_fields import ConfigError
from draftwerk.speculative.request import Options
from draftwerk.speculative.sampling import Grammar, Sampling

FINGERPRINT = "fp_0123456789abcdef"
OPTIONS = Options(
    sampling=Sampling(
        temperature=0.7,
        top_p=0.9,
        seed=2**64 - 3,
        logit_bias=((3, 1.5),),
        grammar=Grammar("regex", "a+"),
        logprobs=2,
    ),
    tokens_max=9,
    choices=2,
    stop=("end", "."),
    tenant="secret",
)
TEXTS = (
    ReceiptText(0, (5, 6, 7, 8), "stop", "end", (-0.25, -1.0, -0.125, -3.5)),
    ReceiptText(1, (9,), "length", "", (-2.0,)),
)
PICTURES = (ReceiptPicture("a" * 64, "b" * 64, ((0, 1), (2, 3))),)
SOUND = receipt_of("m", FINGERPRINT, (1, 2, 3), OPTIONS, TEXTS, PICTURES)
PLAIN: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(SOUND))


def verdict(changed: dict[str, Any], signer: str = "") -> str:
    """The field that is blamed; empty if nothing is."""
    found = fault(msgspec.convert(changed, Receipt), FINGERPRINT, signer)
    return "" if found is None else found[0]


def test_what_was_issued_is_sound_and_says_what_was_asked() -> None:
    assert verdict(PLAIN) == ""
    again = options_of(msgspec.convert(PLAIN, Receipt))
    assert again == msgspec.structs.replace(OPTIONS, tenant="")
    assert "secret" not in msgspec.json.encode(PLAIN).decode()


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize(("kind", "wrong"), [("tokens", 0), ("chain", "0" * 16)])
def test_a_changed_token_or_link_is_named(kind: str, wrong: Any, place: int) -> None:
    made = deepcopy(PLAIN)
    made["choices"][0][kind][place] = wrong
    assert verdict(made) == f"choices[0].{kind}[{place}]"


def test_the_last_link_and_the_last_token_cannot_be_told_apart() -> None:
    made = deepcopy(PLAIN)
    made["choices"][0]["chain"][4] = "0" * 16
    assert verdict(made) == "choices[0].tokens[3]"


def scalars(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [found for key in value for found in scalars(value[key], (*path, key))]
    if isinstance(value, list):
        return [found for at, each in enumerate(value) for found in scalars(each, (*path, at))]
    return [path]


@given(st.sampled_from(scalars(PLAIN)), st.data())
def test_no_change_of_any_value_is_sound(path: tuple[Any, ...], data: st.DataObject) -> None:
    made = deepcopy(PLAIN)
    inside = made
    for key in path[:-1]:
        inside = inside[key]
    old = inside[path[-1]]
    if isinstance(old, str):
        new = data.draw(st.text(max_size=20))
    elif isinstance(old, float):
        new = data.draw(st.floats(allow_nan=False, allow_infinity=False))
    else:
        new = data.draw(st.integers(0, 2**31))
    if new == old:
        return
    inside[path[-1]] = new
    try:
        blamed = verdict(made)
    except msgspec.ValidationError:
        return  # malformed: refused before
    assert blamed
    if path[0] in ("seed", "model", "fingerprint"):
        assert blamed == path[0]
    if path[0] == "pictures":
        assert blamed == "pictures[0]"
    if path[:2] == ("parameters", "sampling"):
        assert blamed.startswith(f"parameters.sampling.{path[2]}")


@pytest.mark.parametrize("name", ["temperature", "top_p"])
def test_a_parameter_that_is_left_out_is_named(name: str) -> None:
    made = deepcopy(PLAIN)
    del made["parameters"]["sampling"][name]
    assert verdict(made) == f"parameters.sampling.{name}"


def test_a_receipt_of_another_server_and_one_without_its_prompt_are_named() -> None:
    assert fault(SOUND, "fp_other") == (
        "fingerprint",
        "this server is fp_other: other weights, formats or numbers",
    )
    made = deepcopy(PLAIN)
    del made["prompt"]["tokens"]
    assert verdict(made) == "prompt.tokens"
    made["prompt"]["tokens"] = [1, 2, 4]
    assert verdict(made) == "prompt.tokens"


def test_signatures_are_of_the_digest_and_of_the_trusted_key(tmp_path: Path) -> None:
    library = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    keys = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    signers: list[Signer] = []
    for name in ("one.pem", "two.pem"):
        key = keys.Ed25519PrivateKey.generate()
        form = (library.Encoding.PEM, library.PrivateFormat.PKCS8, library.NoEncryption())
        (tmp_path / name).write_bytes(key.private_bytes(*form))
        signers.append(Signer(tmp_path / name))
    own, other = signers
    made = msgspec.to_builtins(signed(SOUND, own))
    assert verdict(made, own.public) == verdict(made) == ""
    assert verdict(made, other.public) == "signature.key"
    assert verdict(PLAIN, own.public) == "signature"
    made["signature"]["value"] = "00" * 64
    assert verdict(made, own.public) == "signature.value"
    forged = msgspec.to_builtins(signed(SOUND, other))
    forged["signature"]["key"] = own.public
    assert verdict(forged, own.public) == "signature.value"
    with pytest.raises(ConfigError, match="signing_key"):
        Signer(tmp_path / "none.pem")
