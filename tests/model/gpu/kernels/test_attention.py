"""The Triton attention against the reference: heads, head sizes, page sizes, chains and trees."""

from random import Random

import pytest
import torch
from torch import Tensor

from draftwerk.model.attention.reference import attend
from draftwerk.model.batch.batch import Batch, Facts
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.speculative.rounds import NO_DRAFT, Draft, chain
from tests.model.gpu.support.device import DEVICE, HALF
from tests.support.model_driver import random_tree
from tests.support.pairwise import named, pairwise

pytest.importorskip("triton", reason="Triton is not installed")

from draftwerk.model.gpu.kernels import attention
from draftwerk.model.gpu.kernels.attention import SPLITS_MAX, TritonAttention

HEADS = {"GQA": (4, 2), "MQA": (4, 1), "MHA": (2, 2), "three to one": (6, 2)}
TREES = {"chain": False, "tree": True}
BLOCKS = 16


def case(seed: int, page: int, tree: bool, rows: list[tuple[int, int, int]]) -> Batch:
    """Return a round of (prefix, known tokens, drafted) rows, on shuffled blocks."""
    rng = Random(seed)
    layout = BatchBuilder(page)
    blocks = rng.sample(range(BLOCKS), BLOCKS)
    for prefix, known, drafted in rows:
        draft: Draft = NO_DRAFT
        if drafted:
            draft = chain(tuple(range(drafted)), "test")
            while tree and draft.parents == tuple(range(-1, len(draft.tokens) - 1)):
                draft = random_tree(rng, [], 1000, drafted)
        count = -(-(prefix + known + len(draft.tokens)) // page)
        table = tuple(blocks.pop() for _ in range(count))
        layout.add([0] * known, prefix, table, draft, samples=True)
    return layout.batch(DEVICE)


def tensors(seed: int, tokens: int, heads: int, kv_heads: int, size: int, page: int):
    generator = torch.Generator().manual_seed(seed)
    shape = (BLOCKS, page, kv_heads, size)
    made = (
        torch.randn(tokens, heads, size, generator=generator),
        torch.randn(shape, generator=generator),
        torch.randn(shape, generator=generator),
    )
    return [tensor.to(DEVICE) for tensor in made]


def triton_attention(exact: bool = False):
    return TritonAttention(exact)


@pairwise(heads=HEADS, size=named(64, 128), page=named(16, 256), tree=TREES)
def test_verify_rows_agree_with_the_reference(heads, size, page, tree):
    rows = [(0, 1, 0), (37, 1, 7), (290 if page == 256 else 100, 2, 2)]
    batch = case(size + page, page, tree, rows)
    query, keys, values = tensors(1, len(batch.tokens), *heads, size, page)
    ours = triton_attention()(query, keys, values, batch)
    torch.testing.assert_close(ours, attend(query, keys, values, batch), atol=2e-6, rtol=2e-5)


@pytest.mark.parametrize("tree", [False, True], ids=["chain", "tree"])
@pytest.mark.parametrize("size", [64, 128])
def test_exact_verify_rows_agree_with_the_reference(size, tree):
    batch = case(size, 256, tree, [(0, 1, 0), (300, 2, 3)])
    query, keys, values = tensors(2, len(batch.tokens), 4, 2, size, 256)
    ours = triton_attention(exact=True)(query, keys, values, batch)
    torch.testing.assert_close(ours, attend(query, keys, values, batch), atol=2e-6, rtol=2e-5)


def test_prefill_chunks_beside_verify_rows():
    batch = case(3, 256, True, [(0, 150, 0), (300, 1, 9), (20, 70, 0)])
    query, keys, values = tensors(2, len(batch.tokens), 4, 2, 64, 256)
    ours = triton_attention()(query, keys, values, batch)
    torch.testing.assert_close(ours, attend(query, keys, values, batch), atol=2e-6, rtol=2e-5)


def test_rows_of_both_kinds_are_split_each_in_its_way(monkeypatch: pytest.MonkeyPatch):
    """Verify rows with many splits over long contexts, and a short chunk with some."""
    launched: list[tuple[str, tuple[int, ...]]] = []
    plain = attention.launch

    def noting(kernel, grid, *arguments, **constants):
        launched.append((kernel.__name__, grid))
        plain(kernel, grid, *arguments, **constants)

    monkeypatch.setattr(attention, "launch", noting)
    batch = case(11, 256, True, [(800, 1, 9), (0, 1, 0), (500, 20, 0), (256, 16, 0)])
    query, keys, values = tensors(12, len(batch.tokens), 4, 2, 64, 256)
    ours = triton_attention()(query, keys, values, batch)
    torch.testing.assert_close(ours, attend(query, keys, values, batch), atol=2e-6, rtol=2e-5)
    (_, verify), (_, merged), (_, chunks), _ = launched
    assert [name for name, _ in launched] == ["attend_kernel", "merge_kernel"] * 2
    assert verify[2] > 1 and chunks[2] > 1, "splits"
    assert merged == (4 * 16 * 4,), "places for verify rows alone"


def test_a_head_size_that_is_no_power_of_two():
    batch = case(4, 16, True, [(10, 1, 6)])
    query, keys, values = tensors(5, len(batch.tokens), 4, 2, 80, 16)
    ours = triton_attention()(query, keys, values, batch)
    torch.testing.assert_close(ours, attend(query, keys, values, batch), atol=2e-6, rtol=2e-5)


def test_half_precision_stays_within_its_rounding():
    batch = case(6, 16, True, [(40, 1, 6), (3, 1, 2)])
    made = tensors(7, len(batch.tokens), 4, 2, 64, 16)
    query, keys, values = (tensor.to(HALF) for tensor in made)
    ours = triton_attention()(query, keys, values, batch)
    expected = attend(query.float(), keys.float(), values.float(), batch)
    torch.testing.assert_close(ours.float(), expected, atol=0.02, rtol=0.02)


def test_rows_that_pad_a_batch_leave_the_others_alone():
    """A padding row has new tokens but sees nothing; what it yields is never read."""
    batch = case(8, 16, False, [(20, 1, 3)])
    query, keys, values = tensors(9, 8, 4, 2, 64, 16)
    expected = attend(query[:4], keys, values, batch)
    padded = Batch(
        batch.tokens,
        batch.positions,
        batch.slots,
        torch.tensor([0, 4, 8], dtype=torch.int32, device=DEVICE),
        torch.tensor([24, 0], dtype=torch.int32, device=DEVICE),
        torch.cat([batch.block_tables, batch.block_tables]),
        torch.full((8,), -1, dtype=torch.int64, device=DEVICE),
        batch.outputs,
        Facts(row_max=4, kv_max=512, masked=False),
    )
    ours = triton_attention()(query, keys, values, padded)
    torch.testing.assert_close(ours[:4], expected, atol=2e-6, rtol=2e-5)
    assert ours[4:].isfinite().all()


def exact_inputs(seed: int, tokens: int) -> list[Tensor]:
    """Return query, keys and values of head size 64 for the comparisons of bits.

    NumPy's products depend on a row's place in its matrix, so the interpreter is given numbers
    whose products are exact; this tests how tiles, splits and masks are put together.
    """
    generator = torch.Generator().manual_seed(seed)
    shapes = (tokens, 4, 64), (64, 16, 2, 64), (64, 16, 2, 64)
    if DEVICE.type == "cuda":
        made = [torch.randn(shape, generator=generator) for shape in shapes]
    else:
        steps = (8, 4, 1)
        made = [
            torch.randint(-1, 2, shape, generator=generator) / step
            for shape, step in zip(shapes, steps, strict=True)
        ]
    return [tensor.to(DEVICE, HALF) for tensor in made]


def one_by_one(query: Tensor, keys: Tensor, values: Tensor, prefix: int, table: tuple[int, ...]):
    """Attend for the tokens of one chain, each in a round of its own."""
    out = []
    for index in range(len(query)):
        layout = BatchBuilder(keys.shape[1])
        layout.add([0], prefix + index, table, NO_DRAFT, samples=True)
        attended = triton_attention(exact=True)
        out.append(attended(query[index : index + 1], keys, values, layout.batch(DEVICE)))
    return torch.cat(out)


@pytest.mark.parametrize("context_max", [512, 8_192, 131_072])
def test_exact_attention_cuts_the_keys_alike_for_every_batch(context_max: int):
    exact, fast = TritonAttention(True, context_max), TritonAttention(False, context_max)
    lengths, programs = (1, 256, 257, 500, context_max), (1, 8, 512)
    cuts = [(n, *exact.splits(n, p, 64, DEVICE)) for n in lengths for p in programs]
    assert len({size for _, _, size in cuts}) == 1
    assert all(count * size * 64 >= length for length, count, size in cuts)
    assert max(count for _, count, _ in cuts) <= SPLITS_MAX
    assert len({fast.splits(500, p, 64, DEVICE) for p in programs}) > 1


def test_exact_attention_gives_a_token_the_same_bits_in_any_company():
    """Alone, or after a longer row; and past a split's end, where one more split begins."""
    prefix, count, page = 252, 8, 16
    table = tuple(Random(1).sample(range(64), 17))
    layout = BatchBuilder(page)
    layout.add([0] * 35, 3, tuple(range(3)), NO_DRAFT, samples=True)
    layout.add([0] * count, prefix, table, NO_DRAFT, samples=True)
    query, keys, values = exact_inputs(2, 35 + count)
    together = triton_attention(exact=True)(query, keys, values, layout.batch(DEVICE))
    assert torch.equal(together[35:], one_by_one(query[35:], keys, values, prefix, table))


def test_exact_attention_gives_a_path_of_a_tree_the_bits_it_has_as_a_chain():
    """Tokens 0, 2, 5 of a tree are a chain once their keys are moved together."""
    page, prefix = 16, 126  # the path crosses from one tile of keys to the next
    table = (3, 1, 2, 9, 11, 8, 30, 20, 22)
    draft = Draft((1, 2, 3, 4, 5), (-1, -1, 0, 1, 1), ("test",) * 5)
    layout = BatchBuilder(page)
    layout.add([0], prefix, table, draft, samples=True)
    query, keys, values = exact_inputs(4, 6)
    as_tree = triton_attention(exact=True)(query, keys, values, layout.batch(DEVICE))
    path = [0, 2, 5]  # the known token, its second child, that one's second child
    slots = [table[(prefix + node) // page] * page + (prefix + node) % page for node in path]
    goals = [table[(prefix + step) // page] * page + (prefix + step) % page for step in range(3)]
    for tensor in (keys, values):
        flat = tensor.view(-1, 2, 64)
        flat[goals] = flat[slots].clone()
    as_chain = one_by_one(query[path], keys, values, prefix, table)
    assert torch.equal(as_tree[path], as_chain)
