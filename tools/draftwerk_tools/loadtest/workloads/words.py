"""Text of a chosen length, without a tokenizer.

Short common English words are one token each, with their leading space, in the vocabularies in
use; the true count comes back in the server's `usage` and is what gets reported.
"""

from random import Random

TEXT = (
    "the of and to in is was for on that with as it at by from are this be which or an have had "
    "not but were one all they their been has when who will more no if out so said what up its "
    "about into than them can only other new some could time these two may then do first any my "
    "now such like our over man me even most made after also did many before must through back "
    "years where much your way well down should because each just those people how too little "
    "state good very make world still own see men work long get here between both life being"
)
WORDS = TEXT.split()


def text_of(length: int, key: str) -> str:
    """Return `length` words, always the same ones for the same key."""
    return " ".join(Random(key).choices(WORDS, k=length))


def ids_of(length: int, key: str) -> tuple[int, ...]:
    """Return `length` token ids from a range that is plain text in every common vocabulary."""
    return tuple(Random(key).choices(range(1000, 8000), k=length))
