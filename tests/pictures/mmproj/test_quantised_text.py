"""Pictures in front of a text model in a GGUF's own blocks, whose embedding is in blocks too."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from draftwerk.pictures.picture_rows import PictureRowOptions
from draftwerk.pictures.placeholders import placeholders
from draftwerk.pictures.tower import Tower
from draftwerk.pictures.tower_messages import PictureWork, TowerOptions
from draftwerk.speculative.sampling import Sampling
from tests.support.gguf_of_pictures import save_mmproj, save_text
from tests.support.tiny_pictures import FAMILIES, Pictured, picture, pictured_driver, save_pictured

WIDE = {"hidden_size": 64, "num_attention_heads": 4}
"""Whole blocks of 32."""
DIGEST, COUNT = "0123456789ab" * 2 + "0" * 8, 12
GREEDY = Sampling(temperature=0.0, logprobs=3)


class PicturedGguf:
    """A model in two files, and a prompt with a picture."""

    def __init__(self, folder: Path, kind: str) -> None:
        known = FAMILIES["smolvlm"]
        made = Pictured(
            known.text_type,
            known.tokens,
            lambda text, token: known.config(text | WIDE, token),
            known.processor,
        )
        directory, self.rows = folder / "model", folder / "rows"
        self.rows.mkdir()
        model = save_pictured(made, directory)
        self.picture_id: int = model.config.image_token_id
        self.text = save_text(model, directory, folder / "text.gguf", kind=kind)
        mmproj = save_mmproj(model, directory, folder / "mmproj.gguf", "Q8_0")
        options = TowerOptions(str(directory), str(self.rows), 1, str(mmproj), self.picture_id)
        read = Tower(options).read(PictureWork(DIGEST, picture(1)))
        self.prompt = [5, 9, *placeholders(DIGEST, read.rows), 7, 11]

    def run(self, dtype: str, prompts: Sequence[list[int]], **more: Any) -> list[Any]:
        """Return what texts come to together."""
        rows = PictureRowOptions(str(self.rows), self.picture_id)
        driver = pictured_driver(self.text, rows, {"dtype": dtype}, **more)
        lives = [driver.add(number, each, GREEDY, COUNT) for number, each in enumerate(prompts)]
        driver.run()
        return [
            (live.output, [each.logprobs for each in live.decisions if each.logprobs])
            for live in lives
        ]


@pytest.fixture(scope="module", params=["Q8_0", "Q4_0"])
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PicturedGguf:
    folder = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        return PicturedGguf(folder, request.param)


@pytest.mark.parametrize("dtype", ["stored", "int8", "bf16"])
def test_no_text_depends_on_a_picture_beside_it_or_on_chunks(
    found: PicturedGguf, dtype: str
) -> None:
    plain = [5, 9, 12, 30, 41, 7, 11, 8, 3]
    (alone,) = found.run(dtype, [plain])
    (pictured,) = found.run(dtype, [found.prompt])
    for chunk in (3, 5, 99):
        together = found.run(dtype, [plain, found.prompt], chunk_max=chunk)
        assert together == [alone, pictured]
    other = [token if token < 2**62 else found.picture_id for token in found.prompt]
    assert found.run(dtype, [other]) != [pictured], "its rows are read"


def test_logits_are_near_those_of_the_files_own_values(found: PicturedGguf) -> None:
    (whole,), (own,) = found.run("fp32", [found.prompt]), found.run("stored", [found.prompt])
    first, other = (dict(each[1][0][0].top) for each in (whole, own))
    shared = first.keys() & other.keys()
    assert shared
    wanted, near = (torch.tensor([each[key] for key in shared]) for each in (first, other))
    assert np.abs((wanted - near).numpy()).max() < 0.5
