"""Metrics' families: a sample for each word of a label, and every label named."""

from draftwerk.api.admin.metric_families import gauges_of, split_of


def test_a_split_counter_has_its_label_behind_the_others() -> None:
    family = split_of("tokens", "How many.", "kind", {"read": 2.0, "made": 3.0}, {"model": "m"})
    found = {tuple(sample.labels.values()): sample.value for sample in family.samples}
    assert found == {("m", "read"): 2.0, ("m", "made"): 3.0}
    assert {tuple(sample.labels) for sample in family.samples} == {("model", "kind")}


def test_gauges_have_a_value_for_each_word() -> None:
    family = gauges_of("blocks", "Where.", "state", {"free": 1.0, "used": 4.0})
    assert [(s.labels["state"], s.value) for s in family.samples] == [("free", 1.0), ("used", 4.0)]
