"""Tokens around a gap, of vocabularies that have them, in part, or not."""

import pytest

from draftwerk.speculative.requests.middle import ENDS, FORMS, middle_tokens


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_found_by_its_names(form: tuple[str, ...]) -> None:
    ids = {name: 100 + index for index, name in enumerate((*form, *ENDS[:3]))}
    found = middle_tokens(ids.get)
    assert found is not None
    assert (found.before, found.after, found.middle) == (100, 101, 102)
    assert found.ends == (103, 104, 105)
    assert found.prompt([7], [8], [9]) == [7, 100, 8, 101, 9, 102]


def test_a_part_of_a_form_is_none() -> None:
    for form in FORMS:
        ids = dict.fromkeys(form[:2], 1)
        assert middle_tokens(ids.get) is None
    assert middle_tokens({}.get) is None
