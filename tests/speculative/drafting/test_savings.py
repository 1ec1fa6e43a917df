"""What drafts have saved: new texts begin from what others have, and each goes its own way."""

from draftwerk.speculative.drafting.savings import BEGINNING, SavingsRecord, TextSavings


def test_a_new_text_begins_from_what_others_have_saved() -> None:
    record = SavingsRecord()
    for _ in range(4):
        TextSavings(record).learn(2.0)
    assert TextSavings(record).tokens == 2.0


def test_a_text_that_has_not_been_drafted_for_follows_the_record() -> None:
    record = SavingsRecord()
    waiting = TextSavings(record)
    assert waiting.tokens == 0.0
    TextSavings(record).learn(2.0)
    assert waiting.tokens == 2.0


def test_a_text_soon_goes_its_own_way() -> None:
    record = SavingsRecord()
    TextSavings(record).learn(2.0)
    text = TextSavings(record)
    for _ in range(20):
        text.learn(0.0)
    assert text.tokens < 0.05


def test_the_rest_of_a_long_text_teaches_no_other() -> None:
    record = SavingsRecord()
    text = TextSavings(record)
    for number in range(100):
        text.learn(1.0 if number < BEGINNING else 0.0)
    assert record.tokens == 1.0


def test_a_text_that_rests_returns_to_the_record() -> None:
    record = SavingsRecord()
    text = TextSavings(record)
    for number in range(30):
        text.learn(1.0 if number < BEGINNING else 0.0)
    before = text.tokens
    for _ in range(20):
        record.rounds += 1
    assert before + 0.1 < text.tokens < record.tokens
