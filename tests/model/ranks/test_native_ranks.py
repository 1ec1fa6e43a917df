"""Columns and layers divided among ranks give the bits of one process, in logits and in pages."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from draftwerk.machine.shared_memory import SharedMemory, mapped
from draftwerk.model.batch.batch import Pages
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.checkpoint.shard import Grid
from draftwerk.model.ranks.meeting import SharedAllGather, meeting_bytes
from tests.support.thread_ranks import differing, rounds, thread_ranks
from tests.support.tiny_gguf import save_gguf
from tests.support.tiny_models import save_tiny

GRIDS = (Grid(2, 1), Grid(3, 1), Grid(1, 2), Grid(1, 3), Grid(2, 3))
FORMATS = {"llama": "bf16", "mistral": "int8", "qwen2": "fp32", "qwen3": "int4"}


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found = {family: tmp_path_factory.mktemp(family) for family in FORMATS}
    for family, directory in found.items():
        save_tiny(directory, family, num_hidden_layers=3)
    return found


@pytest.mark.parametrize("family", FORMATS)
def test_every_grid_gives_the_bits_of_one_process(
    directories: dict[str, Path], family: str
) -> None:
    directory = str(directories[family])
    assert not differing(load(directory, None), directory, FORMATS[family], GRIDS)


@pytest.mark.parametrize("is_tied", [True, False])
@pytest.mark.usefixtures("no_tokenizer", "own_cache")
def test_so_do_a_files_own_blocks(is_tied: bool, tmp_path: Path) -> None:
    """Of several types in one matrix, numbers that are not quantised among them."""
    kinds = {"attn_v": "F16", "ffn_up": "Q8_0", "ffn_down": "BF16", "token_embd": "F32"}
    path = save_gguf(
        tmp_path / "m.gguf",
        "llama",
        "Q5_0",
        kinds,
        num_hidden_layers=3,
        tie_word_embeddings=is_tied,
    )
    whole = load(str(path), None, keeps_blocks=True)
    assert not differing(whole, str(path), "stored", (Grid(2, 1), Grid(1, 2), Grid(2, 3)))


def test_a_rank_reads_no_more_than_its_own(directories: dict[str, Path]) -> None:
    ranks = thread_ranks(str(directories["llama"]), Grid(3, 2), "bf16")
    embeddings = [len(stage.forward.embedding) for stage in ranks.stages]
    assert embeddings == [0, 0, 0, 0, 97, 97]


def test_nobody_waits_for_a_rank_that_is_lost(directories: dict[str, Path]) -> None:
    first, second = thread_ranks(str(directories["llama"]), Grid(1, 2), "fp32").stages
    second.give_up()
    pages = torch.zeros(3, 8, 4, 2, 8)
    with pytest.raises(ValueError, match="a rank was lost"):
        first(rounds()[0], Pages(pages, pages.clone()))


def test_more_rows_than_the_memory_holds_are_handed_over_in_turns() -> None:
    size = meeting_bytes(1)
    memory = SharedMemory.make(size)
    mapping = mapped(memory.descriptor)
    seats = [SharedAllGather(mapping.address, size, 2, keeps=mapping) for _ in range(2)]
    rows, columns = 3 * 2**20 // 64 + 5, 64
    whole = torch.arange(rows * columns, dtype=torch.float32).view(rows, columns)
    shares = (range(40), range(40, 64))
    halves = [torch.zeros_like(whole) for _ in seats]
    for half, share in zip(halves, shares, strict=True):
        half[:, share.start : share.stop] = whole[:, share.start : share.stop]
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda seat, half, own: seat.gather(half, own), seats, halves, shares))
    assert all(torch.equal(half, whole) for half in halves)
    memory.close()
