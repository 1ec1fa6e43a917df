"""The tokens that end a text: all that a model's files name, and ends of turns in its template.

generation_config.json   eos_token_id, one or several
config.json              eos_token_id
tokenizer_config.json    eos_token
chat template            its own end of a turn, if it is one of a few that are known
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from draftwerk.model.checkpoint.families.architecture import Json
from draftwerk.model.checkpoint.keys.class_fields import fields_of
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.vocabularies.tokenizer_config import (
    listed_tokens,
    read_tokenizer_config,
)

END_TEXTS = frozenset(
    (
        *("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|endoftext|>", "<|end_of_text|>"),
        *("<end_of_turn>", "<turn|>", "<end_of_utterance>", "<EOT>", "_<EOT>", "[|endofturn|]"),
        *(
            "<|END_OF_TURN_TOKEN|>",
            "<|return|>",
            "<|call|>",
            "<|eos|>",
            "<\uff5cend▁of▁sentence\uff5c>",
        ),
    )
)
"""Control tokens that mean an end in whatever vocabulary they are."""
WITHIN_ANSWERS = "<|end|>"
"""Ends a message, of which an answer in harmony has several."""
HARMONY = "<|return|>"
FIELD = "eos_token_id"


class _ControlToken(msgspec.Struct):
    id: int
    content: str
    special: bool = False


class _TokenizerFile(msgspec.Struct):
    added_tokens: list[_ControlToken] = []


def end_tokens(directory: Path, hf: Json, generation: Json) -> tuple[int, ...]:
    """Return the tokens that end a text of a model, in the order of the files above.

    Raises Refused for a number outside `vocab_size`.
    """
    config = read_tokenizer_config(directory)
    specials = _specials(directory, config, hf["vocab_size"])
    own = config.get("eos_token")
    text = own.get("content") if isinstance(own, dict) else own
    named = [specials[text]] if isinstance(text, str) and text in specials else []
    template = _template(directory, config)
    ends = end_texts(each for each in specials if each in template)
    return _distinct(
        [*declared_ends(hf, generation), *named, *(specials[each] for each in sorted(ends))],
        hf["vocab_size"],
    )


def declared_ends(hf: Json, generation: Json) -> tuple[int, ...]:
    """Return the tokens that two configs name, or if none does the class.

    Raises Refused for one outside `vocab_size`.
    """
    found = [each.get(FIELD) for each in (generation, hf)]
    if FIELD not in hf and not generation and "architectures" in hf:
        ends = fields_of(hf["architectures"][0]).ends
        listed = ends if isinstance(ends, tuple) else [ends]
        return tuple(each for each in listed if each is not None and each < hf["vocab_size"])
    listed = (each if isinstance(each, list) else [each] for each in found if each is not None)
    return _distinct([token for tokens in listed for token in tokens], hf["vocab_size"])


def end_texts(texts: Iterable[str]) -> frozenset[str]:
    """Return those of some control tokens that mean an end."""
    found = END_TEXTS.intersection(texts)
    return found - {WITHIN_ANSWERS} if HARMONY in found else found


def _distinct(tokens: Iterable[Any], vocab_size: int) -> tuple[int, ...]:
    found = list(tokens)
    for token in found:
        if type(token) is not int or not 0 <= token < vocab_size:
            raise Refused(f"{FIELD} {token!r} is outside vocab_size {vocab_size}")
    return tuple(dict.fromkeys(found))


def _specials(directory: Path, config: Json, vocab_size: int) -> dict[str, int]:
    """Return the numbers of control tokens by their texts."""
    listed = listed_tokens(config).items()
    added = [_ControlToken(index, each.content, each.special) for index, each in listed]
    path = directory / "tokenizer.json"
    try:
        if path.is_file():
            added += msgspec.json.decode(path.read_bytes(), type=_TokenizerFile).added_tokens
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return {}  # said where a tokenizer is read
    # A tokenizer larger than the model is refused where it is read.
    return {each.content: each.id for each in added if each.special and each.id < vocab_size}


def _template(directory: Path, config: Json) -> str:
    """Return the texts of all chat templates."""
    files = sorted(directory.glob("chat_template.jinja*")) + sorted(
        directory.glob("additional_chat_templates/*.jinja")
    )
    own = "".join(each.read_text(encoding="utf-8", errors="replace") for each in files)
    return own + str(config.get("chat_template") or "")
