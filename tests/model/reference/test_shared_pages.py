"""Pages over memory that outlives its process: the same tensors, and the journal behind them."""

import subprocess
from pathlib import Path

import msgspec
import pytest
import torch

from draftwerk.cache.pages.page_layout import PageLayout, memory_bytes
from draftwerk.machine.child_python import child_environment, python_command
from draftwerk.machine.shared_memory import HUGE, SharedMemory
from draftwerk.model.batch.batch import Pages
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.process.build import build
from draftwerk.model.reference.kv_pages import copy_blocks
from draftwerk.model.reference.shared_pages import SharedPages
from draftwerk.speculative.protocol.frames import HEADER, FrameKind
from draftwerk.speculative.protocol.journal import MoveJournal, Moves
from tests.support.rounds import make_round
from tests.support.tiny_models import save_tiny
from tests.support.waiting import wait_until

SHAPE = (3, 8, 4, 2, 16)
UNIT = 4 * 2 * 16 * 2


def memory_of(shape: tuple[int, ...] = SHAPE) -> SharedMemory:
    return SharedMemory.make(memory_bytes(2 * torch.Size(shape).numel() * 2))


def shared(memory: SharedMemory, shape: tuple[int, ...] = SHAPE) -> SharedPages:
    return SharedPages(memory.descriptor, shape, torch.bfloat16)


def random_pages() -> Pages:
    return Pages(torch.randn(SHAPE).bfloat16(), torch.randn(SHAPE).bfloat16())


def test_a_block_is_where_its_layout_says() -> None:
    memory = memory_of()
    found = shared(memory)
    assert found.layout == PageLayout(6, 8, UNIT)
    made = random_pages()
    found.pages.keys.copy_(made.keys)
    found.pages.values.copy_(made.values)
    data = memory.map()
    parts = [
        torch.frombuffer(bytearray(data[a:b]), dtype=torch.bfloat16)
        for a, b in found.layout.spans(5)
    ]
    want = torch.cat([made.keys[:, 5], made.values[:, 5]]).view(6, -1)
    assert torch.equal(torch.stack(parts), want)
    memory.close()


@pytest.mark.parametrize("planes", [0, 3])
def test_blocks_of_layers_with_windows_are_where_their_layout_says(planes: int) -> None:
    shape, window = (planes, *SHAPE[1:]), (2, 5, 4, 3, 8)
    others, own = torch.Size(shape).numel(), torch.Size(window).numel()
    memory = SharedMemory.make(memory_bytes(2 * 2 * (others + own)))
    found = SharedPages(memory.descriptor, shape, torch.bfloat16, window=window)
    assert found.layout == PageLayout(2 * planes, 8, UNIT).with_window(4, 5, 4 * 3 * 8 * 2)
    pages = found.pages.window
    assert pages is not None and pages.keys.shape == window
    pages.keys.copy_(torch.randn(pages.keys.shape))
    pages.values.copy_(torch.randn(pages.keys.shape))
    data = memory.map()
    parts = [
        torch.frombuffer(bytearray(data[a:b]), dtype=torch.bfloat16)
        for a, b in found.layout.spans(8 + 3)
    ]
    want = torch.cat([pages.keys[:, 3], pages.values[:, 3]]).view(4, -1)
    assert torch.equal(torch.stack(parts), want)
    copy_blocks(found.pages, [(8 + 3, 8 + 1)])
    assert torch.equal(pages.keys[:, 1], pages.keys[:, 3])
    assert not found.pages.keys.any(), "nothing of the other layers is copied"
    memory.close()


def test_recurrent_states_lie_behind_the_planes() -> None:
    states = 5, 24
    memory = SharedMemory.make(memory_bytes(2 * torch.Size(SHAPE).numel() * 2 + 4 * 5 * 24))
    found = SharedPages(memory.descriptor, SHAPE, torch.bfloat16, states)
    again = SharedPages(memory.descriptor, SHAPE, torch.bfloat16, states)
    assert found.pages.states is not None and again.pages.states is not None
    found.pages.keys.fill_(1.0)
    found.pages.values.fill_(1.0)
    assert not found.pages.states.any()
    found.pages.states.copy_(torch.arange(5 * 24.0).view(states))
    assert again.pages.states[4, 23] == 119.0
    assert (again.pages.values == 1.0).all()
    with pytest.raises(ValueError, match="pages need"):
        SharedPages(memory.descriptor, SHAPE, torch.bfloat16)
    memory.close()


def test_another_process_finds_what_was_written() -> None:
    memory = memory_of()
    first, second = shared(memory), shared(memory)
    first.pages.keys[2, 1] = 3.0
    copy_blocks(first.pages, [(1, 7)])
    assert torch.equal(second.pages.keys, first.pages.keys)
    assert float(second.pages.keys[2, 7].min()) == 3.0
    memory.close()


def test_memory_of_another_size_is_refused() -> None:
    memory = SharedMemory.make(4096)
    with pytest.raises(ValueError, match="shared memory, not 4096"):
        shared(memory)
    memory.close()


def test_the_journal_tells_a_round_begun_from_one_done() -> None:
    memory = memory_of()
    writer, reader = shared(memory).journal, MoveJournal(memoryview(memory.map()))
    rounds = [make_round(round_id=n, copies=((0, 1),)) for n in range(1, 4)]
    plain = make_round(round_id=9)
    assert [reader.state(each) for each in rounds] == [Moves.TO_DO] * 3
    writer.begin(rounds[1])
    assert [reader.state(each) for each in rounds] == [Moves.DONE, Moves.HALF_DONE, Moves.TO_DO]
    writer.end(rounds[1])
    assert [reader.state(each) for each in rounds] == [Moves.DONE, Moves.DONE, Moves.TO_DO]
    writer.begin(plain)
    assert reader.state(rounds[2]) == Moves.TO_DO, "a round without moves leaves no note"
    memory.close()


def test_blocks_in_use_are_gathered_and_keep_their_content() -> None:
    shape = (2, 64, 16, 4, 1024)  # a plane of 8 MiB
    memory = memory_of(shape)
    found = shared(memory, shape)
    found.pages.keys[1, 3] = 2.0
    found.use([3])
    found.use([5, 63])
    wait_until(lambda: found.huge_pages[0]._gathered >= 64 * found.layout.unit_bytes)
    assert float(found.pages.keys[1, 3].min()) == 2.0
    assert float(found.pages.values.abs().max()) == 0.0
    assert memory.allocated >= HUGE
    memory.close()


def test_a_process_over_shared_pages_measures_on_pages_of_its_own(tmp_path: Path) -> None:
    save_tiny(tmp_path, "llama", seed=3)
    options = ModelOptions(source=str(tmp_path), dtype="fp32", block_count=8, block_size=4)
    page_bytes = 2 * 4 * build(options).parts.pages.keys.numel()
    memory = SharedMemory.make(memory_bytes(page_bytes))
    words = msgspec.structs.replace(options, pages_descriptor=memory.descriptor)
    child = subprocess.Popen(
        python_command(
            "draftwerk.model.process.worker", "target", msgspec.json.encode(words).decode()
        ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[memory.descriptor],
        env=child_environment(),
    )
    assert child.stdout is not None
    kind = None
    while kind != FrameKind.READY:
        kind, length = HEADER.unpack(child.stdout.read(HEADER.size))
        child.stdout.read(length)
    child.kill()
    child.communicate()
    assert not any(memory.map()[:page_bytes]), "it measured over the server's blocks"
    memory.close()
