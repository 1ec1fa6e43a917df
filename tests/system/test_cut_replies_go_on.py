"""Replies of a real server, cut at random and sent back: some of those of
`python -m validation.cut_replies`."""

import argparse
from pathlib import Path

from tests.support.thinking_model import save_thinking_model
from validation.cut_replies.__main__ import compare


async def test_cut_replies_go_on_in_a_crowd_while_the_model_is_killed(tmp_path: Path) -> None:
    save_thinking_model(tmp_path)
    arguments = argparse.Namespace(seed=5, crowd=8, kills=1)
    assert await compare("thinking", str(tmp_path), arguments, 20) == 0
