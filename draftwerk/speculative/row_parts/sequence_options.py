"""Options of a sequence that devices and draft sources must know of."""

import msgspec


class SequenceOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Ways in which a sequence is computed and drafted that are not plain."""

    forced_tokens: tuple[int, ...] = ()
    """Generated tokens taken for granted until one is wrong: they are all that is drafted."""
    adapter: str = ""
    """Digest of the adapter that its rows are computed with; empty for none."""


PLAIN_SEQUENCE = SequenceOptions()
"""The options of a plain text."""
