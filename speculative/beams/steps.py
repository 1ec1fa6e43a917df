"""How many exact steps of a beam search a verified forest covers."""

from typing import NamedTuple

from msgspec.structs import replace

from draftwerk.speculative.beams.decisions import Beams, Offer
from draftwerk.speculative.beams.members import Part
from draftwerk.speculative.protocol.rounds import Decision, children_of

Place = tuple[int, int]
"""A row of the search, and a node of its draft; -1 is its last known token."""


class Stand(NamedTuple):
    """How far the forest went along one survivor."""

    head: Place
    """Where its last token was offered."""
    place: Place | None
    """Where its last token is, if that was a node."""
    known: tuple[Offer, ...] | None
    """What comes after it in that case."""


def take_steps(beams: Beams, parts: list[Part], bounded: bool) -> tuple[list[Stand], Place]:
    """Take as many steps as the forest decides; return the survivors' stands and the best's head.

    `bounded` says that a text never becomes likelier by growing, so that some need not be known.
    """
    children = [children_of(part.draft) for part in parts]
    places: list[Place | None] = [(number, -1) for number in range(len(parts))]
    offers = [_offers_at(parts, place) for place in places]
    heads: list[Place] = []
    stood = places
    while _decides(beams, offers, bounded):
        stood = places
        parents = beams.step([offered or () for offered in offers])
        heads = [place for parent in parents if (place := stood[parent]) is not None]
        assert len(heads) == len(parents), "a text goes on from where nobody was"
        if beams.done:
            break
        places = [
            _child(children, place, each.tokens[-1])
            for place, each in zip(heads, beams.live, strict=True)
        ]
        offers = [_offers_at(parts, place) for place in places]
    best = heads[0] if heads else stood[0]
    assert best is not None, "the best text is never passed over"
    if beams.done:
        return [], best
    return [Stand(*each) for each in zip(heads, places, offers, strict=True)], best


def with_known(decision: Decision, known: tuple[Offer, ...]) -> Decision:
    """Return a decision that begins with what was offered after the last known token."""
    return replace(decision, offers=(known, *decision.offers)) if known else decision


def _decides(beams: Beams, offers: list[tuple[Offer, ...] | None], bounded: bool) -> bool:
    if not bounded and beams.rules.seed is None:  # what is drawn competes by bounded scores
        return None not in offers
    return beams.is_certain(offers)


def _offers_at(parts: list[Part], place: Place | None) -> tuple[Offer, ...] | None:
    return None if place is None else parts[place[0]].decision.offers[place[1] + 1]


def _child(children: list[dict[tuple[int, int], int]], place: Place, token: int) -> Place | None:
    """Return where `token` after a place was verified, if it was."""
    number, node = place
    child = children[number].get((node, token))
    return None if child is None else (number, child)
