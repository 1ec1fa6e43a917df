"""What the verified draft trees of a search say to others: drafts, sources, candidates."""

from collections.abc import Iterator, Sequence

from draftwerk.speculative.load.tally import origins
from draftwerk.speculative.options.beams.members import Member
from draftwerk.speculative.options.beams.memory import ORDERS
from draftwerk.speculative.options.beams.steps import TreePosition
from draftwerk.speculative.rounds import Decision, Draft, VerifiedRow
from draftwerk.speculative.row_parts.beam_rows import Seen


def path_to(draft: Draft, node: int) -> tuple[int, ...]:
    """Return the nodes of a draft from the root down to `node`; the path to -1 is empty."""
    path: list[int] = []
    while node >= 0:
        path.append(node)
        node = draft.parents[node]
    return tuple(path[::-1])


def seen(members: Sequence[Member], parts: Sequence[VerifiedRow], count_max: int) -> Iterator[Seen]:
    """Yield the best candidates after each token, for the draft sources."""
    for member, (_, decision, draft) in zip(members, parts, strict=True):
        tails = [tuple(member.tokens[-ORDERS:])]
        for token, parent in zip(draft.tokens, draft.parents, strict=True):
            tails.append((*tails[parent + 1], token)[-ORDERS:])
        for tail, candidates in zip(tails, decision.options.candidates, strict=True):
            yield tail, candidates[:count_max]


def path_origins(parts: Sequence[VerifiedRow], tip: TreePosition) -> tuple[str, ...]:
    """Return where the tokens of the path above `tip` came from, and the one after it."""
    number, node = tip
    draft = parts[number].draft
    path = path_to(draft, node)
    return origins(Decision(tokens=(0,) * (len(path) + 1), path=path), draft)


def as_one_row(parts: Sequence[VerifiedRow], tip: TreePosition) -> VerifiedRow:
    """Return all draft trees as one draft, whose accepted path is the one above `tip`."""
    number, node = tip
    before = sum(len(part.draft.tokens) for part in parts[:number])
    return VerifiedRow(
        parts[number].row,
        Decision(path=tuple(before + each for each in path_to(parts[number].draft, node))),
        Draft(
            tuple(token for part in parts for token in part.draft.tokens),
            (),
            tuple(source for part in parts for source in part.draft.sources),
        ),
    )
