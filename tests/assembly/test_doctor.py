"""The doctor reports a busy machine: what it measures then is too slow."""

from draftwerk.api.shared.config import Settings
from draftwerk.assembly.doctor import busy, findings
from draftwerk.assembly.model_findings import expectations
from draftwerk.speculative.protocol.frames import Ready


def test_a_quiet_machine_is_fine_and_a_busy_one_is_reported() -> None:
    assert busy(0.1, 2).state == "good"
    found = busy(3.4, 2)
    assert found.state == "poor"
    assert "3.4 programs" in found.words
    assert "2 cores" in found.words
    assert busy(3.4, 64).state == "good"


def test_what_recurrent_states_take_is_told() -> None:
    ready = Ready(device="cpu", attention="native", exact=True)
    assert [each.subject for each in expectations(ready)] == ["runs on"]
    recurrent = Ready(device="cpu", attention="native", exact=True, states=(20, 50_000_000))
    _, found = expectations(recurrent, 16_256)
    assert found.subject == "recurrent states"
    assert found.words.startswith("20 slots of 50.0 MB, 1000 MB of kv-memory")
    assert found.words.endswith("where prompts part, and every 16,256 tokens")


def test_what_the_draft_head_is_is_told() -> None:
    ready = Ready(device="cpu", attention="native", exact=True, draft_head="an EAGLE-3 layer")
    _, found = expectations(ready)
    assert (found.subject, found.words) == ("draft head", "an EAGLE-3 layer")


def test_a_model_that_is_no_path_and_on_no_hub_is_reported() -> None:
    found = {each.subject: each.state for each in findings(Settings(model="/nowhere"), str)}
    assert found["model /nowhere"] == "bad"
    found = {each.subject: each.state for each in findings(Settings(model="org/name"), str)}
    assert found["model org/name"] == "good"
