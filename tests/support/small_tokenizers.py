"""Small tokenizers of two kinds, saved as Transformers does."""

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from draftwerk.model.text.tokenizer import TextTokenizer

CORPUS = [
    "the quick brown fox jumps over the lazy dog, again and again",
    "Grüße aus Köln, 🦊 und 日本語のテキスト",
] * 3


def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, initial_alphabet=alphabet, special_tokens=["<s>", "</s>"]
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def sentencepiece_like() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<s>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1),
        ]
    )
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=360, special_tokens=["<s>", "</s>", *fallback])
    tokenizer.train_from_iterator(CORPUS[:1], trainer)
    # Bytes are ordinary pieces, not special tokens.
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = [
        each for each in state["added_tokens"] if each["content"] not in fallback
    ]
    return Tokenizer.from_str(json.dumps(state))


KINDS = {"byte level": byte_level, "byte fallback": sentencepiece_like}


def saved(tokenizer: Tokenizer, directory: Path, template: str | None = None) -> TextTokenizer:
    """Save a tokenizer as Transformers does, and read it back as ours."""
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", chat_template=template
    )
    wrapped.save_pretrained(directory)
    return TextTokenizer(directory)
