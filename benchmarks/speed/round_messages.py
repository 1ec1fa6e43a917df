"""What block tables cost on their way to the model process: whole ones, and new blocks alone.

    python -m benchmarks.speed.round_messages [--rows 64] [--tokens 4096]

Printed are bytes of an encoded proposal and microseconds of processor time to encode and decode it;
then what finding the new blocks takes the sender, what putting them behind the old ones takes the
receiver, and what the tables take right before a forward pass.
"""

import argparse
from collections.abc import Callable, Sequence
from time import process_time

import msgspec
import numpy as np
from msgspec.structs import replace

from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.speculative.protocol.frames import encode
from draftwerk.speculative.protocol.rounds import NO_DRAFT, Proposal, Round, Row

BLOCK = 16
REPEATS, BEST_OF = 200, 5
Table = tuple[int, ...]


def spent_us(work: Callable[[], object]) -> float:
    """Return the least processor time of a call."""
    best = float("inf")
    for _ in range(BEST_OF):
        begun = process_time()
        for _ in range(REPEATS):
            work()
        best = min(best, (process_time() - begun) / REPEATS)
    return 1e6 * best


def tables_of(rows: int, tokens: int) -> list[Table]:
    """Return block tables of a pool in use for long: in no order."""
    width = tokens // BLOCK + 1
    blocks = np.random.default_rng(0).permutation(rows * width).tolist()
    return [tuple(blocks[row * width : (row + 1) * width]) for row in range(rows)]


def proposal_of(tables: Sequence[Table], tokens: int) -> Proposal:
    """Return a round of rows that go on behind so many tokens."""
    rows = tuple(
        Row(
            sequence_id=number,
            start=tokens,
            stop=tokens + 1,
            samples=True,
            draft_max=3,
            blocks=table,
            new_token_ids=(5,),
            tokens_left=100,
            continues=True,
        )
        for number, table in enumerate(tables)
    )
    return Proposal(Round(round_id=1, pipeline_slot=0, rows=rows), ())


def new_blocks(old: Sequence[Table], whole: Proposal) -> tuple[Row, ...]:
    """Return the rows with what their tables have gained."""
    return tuple(
        replace(row, blocks=row.blocks[len(table) :])
        for row, table in zip(whole.round.rows, old, strict=True)
        if row.blocks[: len(table)] == table
    )


def laid_out(tables: Sequence[Table], tokens: int) -> BatchBuilder:
    builder = BatchBuilder(BLOCK)
    for table in tables:
        builder.add([7], tokens, table, NO_DRAFT, True)
    return builder


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=4096)
    given = parser.parse_args()
    tables = tables_of(given.rows, given.tokens)
    # A row's table grows with every 16th token or so.
    old = [table[:-1] if row % BLOCK == 0 else table for row, table in enumerate(tables)]
    whole = proposal_of(tables, given.tokens)
    gained = replace(whole, round=replace(whole.round, rows=new_blocks(old, whole)))
    decoder = msgspec.msgpack.Decoder(Proposal)
    for name, proposal in (("whole tables", whole), ("new blocks", gained)):
        data = encode(proposal)
        encoding = spent_us(lambda proposal=proposal: encode(proposal))
        decoding = spent_us(lambda data=data: decoder.decode(data))
        print(
            f"{name:14} {len(data):7d} bytes, encode {encoding:5.0f} us, decode {decoding:5.0f} us"
        )
    rows = gained.round.rows
    print(f"find new blocks {spent_us(lambda: new_blocks(old, whole)):5.0f} us")
    behind = spent_us(lambda: [a + row.blocks for a, row in zip(old, rows, strict=True)])
    print(f"put them behind {behind:5.0f} us")
    builder = laid_out(tables, given.tokens)
    print(f"tables of the batch {spent_us(builder.block_tables):5.0f} us")


if __name__ == "__main__":
    main()
