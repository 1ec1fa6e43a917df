"""Names of blocks: equal exactly when prefix, tokens, name space and secret are."""

from hypothesis import given
from hypothesis import strategies as st

from draftwerk.cache.tables import ROOT, BlockNamer

namer = BlockNamer(b"secret")
spaces = st.text(max_size=20)
blocks = st.lists(st.integers(-1, 2**40), min_size=2, max_size=2)


def chain(tokens: list[list[int]], space: str, namer: BlockNamer = namer) -> list[bytes]:
    """Return the names of one text's blocks."""
    names = [ROOT]
    for block in tokens:
        names.append(namer.name(names[-1], block, space))
    return names[1:]


def test_one_text_has_one_name() -> None:
    assert chain([[1, 2], [3, 4]], "a") == chain([[1, 2], [3, 4]], "a")


def test_a_name_does_not_care_for_the_kind_of_sequence() -> None:
    assert namer.name(ROOT, (1, 2), "a") == namer.name(ROOT, [1, 2], "a")


def test_a_name_depends_on_everything_before_its_block() -> None:
    names = chain([[1, 2], [3, 4], [3, 4]], "a")
    assert len(set(names)) == 3
    assert chain([[1, 9], [3, 4], [3, 4]], "a")[1:] != names[1:]


def test_a_name_depends_on_the_order_of_tokens() -> None:
    assert namer.name(ROOT, [1, 2], "a") != namer.name(ROOT, [2, 1], "a")


def test_a_name_depends_on_the_secret() -> None:
    other = BlockNamer(b"another")
    assert chain([[1, 2], [3, 4]], "a") != chain([[1, 2], [3, 4]], "a", other)


@given(
    st.tuples(st.lists(blocks, min_size=1, max_size=3), spaces),
    st.tuples(st.lists(blocks, min_size=1, max_size=3), spaces),
)
def test_different_texts_or_spaces_share_no_name(
    one: tuple[list[list[int]], str], other: tuple[list[list[int]], str]
) -> None:
    common = 0
    if one[1] == other[1]:
        pairs = zip(one[0], other[0], strict=False)
        common = next(
            (n for n, (a, b) in enumerate(pairs) if a != b), min(len(one[0]), len(other[0]))
        )
    assert len(set(chain(*one)) & set(chain(*other))) == common


@given(blocks, spaces)
def test_the_bytes_of_a_token_cannot_move_between_space_and_tokens(
    tokens: list[int], space: str
) -> None:
    token = int.from_bytes(b"eightbyt", "little")
    short = namer.name(ROOT, [token, *tokens], space)
    assert short != namer.name(ROOT, tokens, space + "eightbyt")
    assert short != namer.name(ROOT, tokens, "eightbyt" + space)


def test_a_first_block_cannot_pose_as_a_later_one() -> None:
    """A space made of a parent's bytes must not stand in for that parent."""
    parent = (16).to_bytes(4, "little") + b"twelve bytes"
    assert namer.name(parent, [1, 2], "") != namer.name(ROOT, [1, 2], "twelve bytes\0\0\0\0")


def test_half_a_surrogate_pair_names_a_space_too() -> None:
    assert namer.name(ROOT, [1], "\ud800") != namer.name(ROOT, [1], "\ud801")
