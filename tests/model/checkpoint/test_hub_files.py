"""Models are fetched from a hub that breaks off, lies, refuses or is not there."""

import os
import shutil
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants, file_download

from draftwerk.model.checkpoint import hub_files
from draftwerk.model.checkpoint.files.byte_progress import ByteProgress, size_text
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.hub_files import fetch, find_local
from draftwerk.model.checkpoint.hub_name import HubName
from draftwerk.model.checkpoint.info import read_info
from draftwerk.model.checkpoint.unsupported import Refused
from tests.support.stand_in_hub import StandInHub, stand_in_hub
from tests.support.tiny_gguf import save_gguf
from tests.support.tiny_models import VOCAB

Q4 = HubName("org/m-GGUF", tag="Q4_K_M")
FILE = "m-Q4_K_M.gguf"
WEIGHTS = b"GGUF" + os.urandom(300_000)
PLAIN = HubName("org/plain")
PARTS = {f"b-Q8_0-0000{part}-of-00002.gguf": os.urandom(5000) for part in (1, 2)}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInHub]:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 10_000)
    monkeypatch.setattr(file_download.time, "sleep", lambda seconds: None)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with stand_in_hub() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        running.repositories["org/m-GGUF"] = {"README.md": b"x", FILE: WEIGHTS, **PARTS}
        running.repositories["org/plain"] = {
            "config.json": b"{}",
            "model.safetensors": os.urandom(4000),
            "pytorch_model.bin": os.urandom(4000),
            "code.py": b"1",
        }
        yield running


def fetched(name: HubName = Q4) -> tuple[Path, list[str]]:
    """Fetch; returns the path and the lines of progress."""
    lines: list[str] = []
    return fetch(name, lines.append), lines


def refusal(name: HubName = Q4) -> str:
    with pytest.raises(Refused) as found:
        fetched(name)
    said = str(found.value)
    assert said.startswith(f"{name}: ") and "\n" not in said
    return said


def blobs() -> list[str]:
    folder = hub_files.repository_folder(Q4.repo) / "blobs"
    return sorted(path.name for path in folder.iterdir())


def test_a_gguf_is_fetched_whole_by_its_tag(hub: StandInHub):
    path, lines = fetched()
    assert path.name == FILE and path.read_bytes() == WEIGHTS
    assert blobs() == [sha256(WEIGHTS).hexdigest()]
    assert lines[-1] == "pulling org/m-GGUF:Q4_K_M: 0.3 of 0.3 MB, 0 s left"
    assert find_local(Q4) == path


def test_what_is_here_is_not_fetched_again(hub: StandInHub):
    first, _ = fetched()
    before = len(hub.ranges(FILE))
    assert fetched() == (first, [])
    assert len(hub.ranges(FILE)) == before == 1


def test_all_parts_of_a_split_model_come(hub: StandInHub):
    path, _ = fetched(HubName("org/m-GGUF", tag="Q8_0"))
    assert {name: (path.parent / name).read_bytes() for name in PARTS} == PARTS


def test_a_hub_that_breaks_off_is_asked_for_the_rest(hub: StandInHub):
    hub.breaks[FILE] = [100_000, 50_000]
    path, _ = fetched()
    assert path.read_bytes() == WEIGHTS
    assert hub.ranges(FILE) == ["", "bytes=100000-", "bytes=150000-"]


def test_a_pull_that_ended_midway_goes_on_from_there(hub: StandInHub):
    hub.breaks[FILE] = [100_000] + [0] * 9
    said = refusal()
    assert "broke off" in said and said.endswith("goes on from there")
    assert blobs() == [sha256(WEIGHTS).hexdigest() + ".incomplete"]
    assert find_local(Q4) is None
    hub.breaks.clear(), hub.asked.clear()
    path, lines = fetched()
    assert path.read_bytes() == WEIGHTS
    assert hub.ranges(FILE) == ["bytes=100000-"]
    assert lines[0] == "pulling org/m-GGUF:Q4_K_M: 0.1 of 0.3 MB"


def test_a_hub_that_ignores_what_is_asked_for_is_read_from_the_beginning(hub: StandInHub):
    hub.breaks[FILE] = [100_000] + [0] * 9
    refusal()
    hub.breaks.clear()
    hub.ignores_range = True
    assert fetched()[0].read_bytes() == WEIGHTS


@pytest.mark.parametrize(("name", "file"), [(Q4, FILE), (PLAIN, "config.json")])
def test_other_bytes_than_the_digest_says_are_removed(hub: StandInHub, name: HubName, file: str):
    hub.damaged.add(file)
    assert f"what came for {file} is not what the hub names" in refusal(name)
    assert find_local(name) is None
    hub.damaged.clear()
    assert find_local(name) is None
    fetched(name)
    assert find_local(name) is not None


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((403, "GatedRepo"), "gated: accept its terms at http://127.0.0.1"),
        ((401, "GatedRepo"), "gated"),
        ((401, ""), "401: it has no model org/m-GGUF, or one for which HF_TOKEN must be set"),
        ((404, "RepoNotFound"), "has no model org/m-GGUF"),
        ((403, ""), "403: this HF_TOKEN may not read it"),
        ((418, ""), "answers 418"),
    ],
)
def test_a_refusal_is_one_sentence(hub: StandInHub, answer: tuple[int, str], said: str):
    hub.refusals["org/m-GGUF"] = answer
    assert said in refusal()


def test_what_the_hub_does_not_have_is_named(hub: StandInHub):
    assert "has no model org/none" in refusal(HubName("org/none"))
    assert "has no revision v9" in refusal(HubName("org/plain", "v9"))
    assert "which GGUF? it has b-Q8_0, m-Q4_K_M" in refusal(HubName("org/m-GGUF", tag="Q6_K"))


def test_no_hub_is_one_sentence(hub: StandInHub, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert "no hub is reachable at http://127.0.0.1:9" in refusal()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE is set" in refusal()


def test_a_disk_that_is_too_small_is_told_before_anything_comes(
    hub: StandInHub, monkeypatch: pytest.MonkeyPatch
):
    usage = shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr(hub_files.shutil, "disk_usage", lambda path: usage)
    assert "takes 0.3 MB more" in refusal()
    assert not hub.ranges(FILE)


def test_a_copy_of_which_files_are_missing_is_not_whole(hub: StandInHub):
    directory, _ = fetched(PLAIN)
    (directory / "model.safetensors").unlink()
    assert find_local(PLAIN) is None


def test_a_meter_tells_what_is_left_by_the_rate_of_the_last_seconds():
    now, lines = [0.0], list[str]()
    meter = ByteProgress(lines.append, "loading m", 4_600_000_000, clock=lambda: now[0])
    for second in range(4):
        now[0] = second
        meter.reach(500_000_000 * second)
    assert lines[-1] == "loading m: 1.5 of 4.6 GB, 6 s left"
    now[0] += 0.1
    meter.add(1)
    assert len(lines) == 4  # not ten a second
    now[0] = 100.0
    meter.reach(4_600_000_000)
    assert lines[-1].startswith("loading m: 4.6 of 4.6 GB")
    assert size_text(12_345_678) == "12 MB"


def test_a_model_that_was_pulled_is_served_where_no_hub_answers(
    hub: StandInHub, monkeypatch: pytest.MonkeyPatch
):
    directory, _ = fetched(PLAIN)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    lines: list[str] = []
    assert locate("org/plain", lines.append) == ("org/plain", directory)
    assert lines[-1].startswith("the copy of org/plain that is here is served: org/plain: no hub")
    with pytest.raises(Refused, match="no hub is reachable"):
        locate("org/m-GGUF:Q4_K_M")


@pytest.mark.usefixtures("no_tokenizer", "own_cache")
def test_a_gguf_of_a_hub_is_served_by_its_name(hub: StandInHub, tmp_path: Path):
    save_gguf(tmp_path / "m.gguf", "llama", "F32", parts=8)
    parts = {f"q/{path.name}": path.read_bytes() for path in sorted(tmp_path.glob("m-*.gguf"))}
    hub.repositories["org/split"] = parts
    found = locate("https://huggingface.co/org/split/blob/main/q/m-00002-of-00003.gguf")
    assert found.name == "org/split/q/m-00002-of-00003.gguf"
    assert read_info(found).vocab_size == VOCAB
    assert locate("org/split").directory == found.directory.with_name(
        found.directory.name.replace("-q-m-00002-of-00003.gguf", "")
    )


@pytest.mark.parametrize("digest", ["../" * 9 + "tmp/x", "a/b", "", "g" * 64, "a" * 63])
def test_a_digest_that_is_none_is_no_files_name(
    hub: StandInHub, monkeypatch: pytest.MonkeyPatch, digest: str
):
    listed = hub_files.HfApi.list_repo_tree

    def altered(*args: Any, **named: Any) -> Any:
        for each in listed(*args, **named):
            each.blob_id, each.lfs = digest, None
            yield each

    monkeypatch.setattr(hub_files.HfApi, "list_repo_tree", altered)
    assert "no digest" in refusal()
