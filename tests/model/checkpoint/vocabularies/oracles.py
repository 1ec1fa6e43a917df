"""Small vocabularies of SentencePiece, and texts that try them."""

from io import BytesIO
from random import Random
from typing import Any

import pytest

CORPUS = [
    "the quick brown fox jumps over the lazy dog, again and again",
    "Grüße aus Köln, 🦊 und 日本語のテキスト; 12345 Äpfel",
    "def f(x):\n    return x + 1  # done\t<user> and more",
] * 4
LETTERS = " \n\t  aeinrt  theAndKölñ日本語🦊é\u0301ﬁ①½1289.,;:!?'\"()<>_-ßxyzЖ" + (
    "\u05e9\u0644\u0627\u200b\u3000\u00a0"
)
WORDS = ("the", " the", "again", "Grüße", "日本", "  ", "'s", "12", "\n\n", "▁", "<user>")


def trained(**options: Any) -> bytes:
    """Return the file of a vocabulary that the package trains."""
    sentencepiece = pytest.importorskip("sentencepiece")
    writer = BytesIO()
    usual = {"vocab_size": 420, "byte_fallback": True, "normalization_rule_name": "identity"}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=writer,
        minloglevel=2,
        hard_vocab_limit=False,
        **usual | options,
    )
    return writer.getvalue()


def random_texts(seed: int, count: int = 200) -> list[str]:
    """Return texts of many scripts, and of odd spaces."""
    rng = Random(seed)
    found = ["", " ", "  a", "a  ", "\n", "the quick  brown fox", *CORPUS[:3]]
    for _ in range(count):
        pieces = (
            rng.choice(WORDS) if rng.random() < 0.4 else rng.choice(LETTERS)
            for _ in range(rng.randint(1, 24))
        )
        found.append("".join(pieces))
    return found
