"""Who ran as the actors failed, and how far each had come."""

from draftwerk.actors.requests.suspects import ComputedCount, computed_counts
from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.memory import CachePools
from draftwerk.cache.tables import BlockNamer
from draftwerk.speculative.request import SequenceRequest
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.sequence import Sequence


def running(request_id: str, choice: int, computed: int, depth: int = 0) -> Sequence:
    memory = CachePools(BlockPool(4, 4)).memory(BlockNamer(b""), "")
    request = SequenceRequest(
        request_id=request_id,
        choice=choice,
        prompt_count=3,
        sampling=Sampling(),
        tokens_max=9,
        draft_max=0,
    )
    text = Sequence(1, request, [1, 2, 3], memory, computed=computed)
    text.tally.depth = depth
    return text


def test_all_choices_of_a_request_count_and_so_do_the_steps_of_a_search() -> None:
    texts = [running("a", 0, 5), running("b", 0, 2, depth=7), running("a", 1, 3)]
    assert computed_counts(texts) == {"a": ComputedCount(8), "b": ComputedCount(2, 7)}


def test_a_search_is_farther_than_another_behind_the_same_prompt() -> None:
    (early,), (late,) = (computed_counts([running("a", 0, 2, n)]).values() for n in (3, 4))
    assert late > early
