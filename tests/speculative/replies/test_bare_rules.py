"""Names that can be told from what stands around them."""

from draftwerk.speculative.replies.bare_rules import is_bare_name


def test_a_name_has_nothing_that_ends_it() -> None:
    assert is_bare_name("city") and is_bare_name("two words")
    assert not any(is_bare_name(name) for name in ("", " a", "a:b", "a,b", "a{", "a]", "a<b"))
