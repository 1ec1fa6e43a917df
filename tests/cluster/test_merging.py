"""The snapshots of replicas as one: every counter of the engine's has a place."""

from msgspec.structs import fields, replace

from draftwerk.actors.monitoring.snapshot import Snapshot
from draftwerk.cluster.merging import BY_WORD, OTHERWISE, SUMMED, WORST, merged

BY_HAND = {
    *("accepted_by_position", "device_gaps", "mailbox_waits", "request_stages"),
    *("target_up", "draft_up", "draining", "open_replicas"),
    *OTHERWISE,
    *WORST,
}


def of(replicas: dict[str, Snapshot]) -> Snapshot:
    return merged(replicas, open_replicas=("a",), draining=False, moves={"lost": 1})


def test_every_field_of_a_snapshot_is_placed_once() -> None:
    assert sorted([*SUMMED, *BY_WORD, *BY_HAND]) == sorted(each.name for each in fields(Snapshot))


def test_counters_are_added_and_ages_are_at_their_worst() -> None:
    one = replace(Snapshot(), **dict.fromkeys(SUMMED, 2), **{name: {"x": 3} for name in BY_WORD})
    one = replace(one, progress_age_s=1.0, actor_ages_s={"verifier": 0.5}, draft_up=True)
    other = replace(one, progress_age_s=4.0, actor_ages_s={"verifier": 0.25}, draft_up=None)
    both = of({"a": one, "b": other})
    assert {getattr(both, name) for name in SUMMED} == {4}
    assert all(getattr(both, name) == {"x": 6} for name in BY_WORD)
    assert both.progress_age_s == 4.0 and both.actor_ages_s == {"verifier": 0.5}
    assert both.draft_up is True and both.moves == {"lost": 1}
    assert both.replicas == {"a": one, "b": other}
