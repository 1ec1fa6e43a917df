"""Texts whose pictures are each read in one row: their rows see each other, those behind too."""

from collections.abc import Sequence as Ordered
from dataclasses import dataclass

from draftwerk.speculative.options.extended_sequence import extended
from draftwerk.speculative.parameters.bounds import PLACEHOLDER_MIN
from draftwerk.speculative.request import EncodedRequest
from draftwerk.speculative.rounds import Row
from draftwerk.speculative.running_set import SequenceFactory
from draftwerk.speculative.sequence import RoundPlan, Sequence


@dataclass(eq=False)
class WholePictures(Sequence):
    """A text that is not cut in a picture; where a round has too little room, it gets larger."""

    def rows(self, plan: RoundPlan, count_max: int, draft_max: int) -> list[Row]:
        count = min(self.unread, plan.tokens_left, count_max, plan.pools.chunk_max)
        first, end = cut_picture(self.tokens, self.planned + count)
        if first == end:
            return super().rows(plan, count_max, draft_max)
        if first > self.planned:
            return super().rows(plan, first - self.planned, 0)
        more = end - self.planned - plan.tokens_left
        plan.tokens_left += max(0, more)
        found = super().rows(plan, end - self.planned, 0)
        if not found:
            plan.tokens_left -= max(0, more)
        return found


def cut_picture(tokens: Ordered[int], at: int) -> tuple[int, int]:
    """Return where a picture begins and ends that has tokens on both sides of a place; nothing
    where there is none."""
    first = end = at
    while 0 < end < len(tokens) and tokens[end - 1] + 1 == tokens[end] > PLACEHOLDER_MIN:
        end += 1
    while 0 < first < end and tokens[first - 1] + 1 == tokens[first] > PLACEHOLDER_MIN:
        first -= 1
    return first, end


def whole_pictures(factory: SequenceFactory, request: EncodedRequest, text: Sequence) -> Sequence:
    """Extend a text that has pictures."""
    has_pictures = max(request.tokens, default=0) >= PLACEHOLDER_MIN
    return extended(text, WholePictures) if has_pictures else text
