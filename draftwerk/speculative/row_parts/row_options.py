"""Options of a row: who plans rounds hands them on unopened."""

import msgspec

from draftwerk.cache.kinds.recurrent_states import RowState
from draftwerk.speculative.row_parts.beam_rows import Branch
from draftwerk.speculative.row_parts.row_blend import RowBlend


class RowOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Parts of a row beside its known tokens and their drafts, each encoded where it is set; those
    that every row of a model may have are under short names."""

    window_blocks: tuple[int, ...] = msgspec.field(default=(), name="w")
    """The table of layers with windows, where they have blocks of their own: ids behind all others,
    and -1 for blocks that are not read again."""
    state: RowState | None = msgspec.field(default=None, name="s")
    """The state of a model with recurrent layers."""
    continues: bool = msgspec.field(default=False, name="c")
    """Whether it begins where the round before ends, which was under way when this was planned.

    Then `start` and `stop` are the least that they may be, `blocks` cover the most, and the device
    knows the new tokens itself: see `protocol.continuations`.
    """
    branch: Branch | None = msgspec.field(default=None, name="b")
    """The mark of a row of a beam search."""
    blend: RowBlend | None = None
    """The blend of a prompt whose segments are reused: start .. stop are not all computed."""
    scored: tuple[int, int] = (0, 0)
    """(from, to) positions of known tokens after which the next one's log-probability is wanted."""
    prompt_logprobs: int = -1
    """Alternatives to report beside each."""
    pools: bool = False
    """Whether the sum of the states after those positions is wanted, and no log-probabilities."""
    answers: tuple[int, ...] = ()
    """Tokens whose log-probabilities are wanted there, in place of the known one's."""

    @property
    def in_group(self) -> bool:
        """Whether it is one of several rows that a sequence has."""
        return self.branch is not None

    @property
    def forked_from(self) -> int:
        """The sequence whose tokens and blocks it goes on from; 0 for its own."""
        return 0 if self.branch is None else self.branch.origin

    @property
    def computes_all(self) -> bool:
        """Whether all known tokens are computed, in line."""
        return self.blend is None

    def computed_count(self, known: int) -> int:
        """Return how many of so many known tokens are computed through all layers."""
        return known if self.blend is None else self.blend.token_count


NO_ROW_OPTIONS = RowOptions()
"""The options of a plain row."""
