"""A visit's stages end by themselves, go on where they stopped, and take what was carried."""

import json
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from benchmarks.gpu import visit as visiting
from benchmarks.gpu.carry import (
    FA3,
    FOLDERS,
    MODEL_FILE,
    MODEL_PACKAGE,
    PART,
    flash_attention_2,
    model_halves,
)
from benchmarks.gpu.row_file import RowFile
from benchmarks.gpu.visit import STAGES, VisitStage, unpack, visit

WRITES = "import sys, pathlib; pathlib.Path(sys.argv[-1]).write_text('{\"ran\": 1}\\n')"


@pytest.fixture(autouse=True)
def no_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(visiting, "KERNELS", ("-c", ""))
    monkeypatch.setattr(visiting, "FOLDERS", (str(tmp_path / "none"),))


def codes(out: Path) -> dict[str, int]:
    lines = (out / "visit.jsonl").read_text("utf-8").splitlines()
    return {row["stage"]: row["code"] for row in map(json.loads, lines)}


def test_a_stage_that_fails_takes_no_other_with_it(tmp_path: Path):
    stages = VisitStage("bad", 60, ("-c", "exit(3)")), VisitStage("good one", 60, ("-c", WRITES))
    assert not visit(tmp_path, 5, False, stages)
    assert codes(tmp_path) == {"bad": 3, "good one": 0}
    assert RowFile(tmp_path / "good-one.jsonl").has({"ran": 1})


def test_a_stage_ends_at_its_limit(tmp_path: Path):
    stages = (
        VisitStage("long", 0.5, ("-c", "import time; time.sleep(600)")),
        VisitStage("next", 60, ("-c", "")),
    )
    assert not visit(tmp_path, 5, False, stages)
    assert codes(tmp_path) == {"long": -1, "next": 0}


def test_a_visit_goes_on_where_the_one_before_ended(tmp_path: Path):
    counts = "import sys, pathlib; p = pathlib.Path(sys.argv[-1]); p.open('a').write('{}\\n')"
    first = VisitStage("first", 60, ("-c", counts))
    assert visit(tmp_path, 5, False, [first])
    assert not visit(tmp_path, 5, False, [first, VisitStage("second", 60, ("-c", "exit(1)"))])
    assert visit(tmp_path, 5, False, [first, VisitStage("second", 60, ("-c", ""))])
    assert (tmp_path / "first.jsonl").read_text("utf-8") == "{}\n"


def test_without_time_nothing_is_begun(tmp_path: Path):
    assert not visit(tmp_path, 0.1, False, [VisitStage("one", 60, ("-c", ""))])
    assert not (tmp_path / "visit.jsonl").exists()


def test_rows_are_kept_and_found_again(tmp_path: Path):
    rows = RowFile(tmp_path / "rows.jsonl")
    rows.add({"rows": 1, "length": 8, "step_us": 5.0})
    again = RowFile(tmp_path / "rows.jsonl")
    assert again.has({"rows": 1, "length": 8})
    assert not again.has({"rows": 1, "length": 1})


def test_half_a_row_is_measured_again(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"rows": 1}\n{"rows": 2, "step_', "utf-8")
    rows = RowFile(path)
    assert rows.rows == [{"rows": 1}]
    rows.add({"rows": 2})
    assert RowFile(path).rows == [{"rows": 1}, {"rows": 2}]


def test_a_visit_that_is_killed_leaves_no_stage(tmp_path: Path):
    code = f"""
from pathlib import Path
from benchmarks.gpu import visit
visit.FOLDERS, visit.KERNELS = ("none",), ("-c", "")
stage = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
visit.visit(Path({str(tmp_path)!r}), 5, False, [visit.VisitStage("long", 300, ("-c", stage))])
"""
    killed = subprocess.Popen([sys.executable, "-c", code], cwd=visiting.ROOT)
    log = tmp_path / "long.log"
    while not (log.exists() and log.read_text("utf-8").endswith("\n")):
        assert killed.poll() is None
        time.sleep(0.05)
    killed.kill()
    killed.wait()
    stage = Path(f"/proc/{log.read_text('utf-8').strip()}")
    while stage.exists() and "State:\tZ" not in (stage / "status").read_text("utf-8"):
        time.sleep(0.05)
    assert not (tmp_path / "visit.jsonl").exists()


def test_what_was_carried_becomes_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(visiting, "READY", tmp_path / "ready")
    folders = [tmp_path / name for name in FOLDERS]
    for folder in folders:
        folder.mkdir()
    with zipfile.ZipFile(folders[0] / "some-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("some/__init__.py", "")
    with zipfile.ZipFile(folders[0] / FA3, "w") as archive:
        archive.writestr("flash_attn_interface.py", "")
    built = tmp_path / "built"
    (built / "flash_attn").mkdir(parents=True)
    for name in ("flash_attn_2_cuda.so", "flash_attn/__init__.py"):
        (built / name).touch()
    flash_attention_2(folders[0], built)
    (folders[0] / "avx2-0123456789abcdef.so").write_bytes(b"kernels")
    model_halves(folders[1:])
    site = tmp_path / "site"
    unpack(folders, site)
    assert (site / "some/__init__.py").exists() and (site / "flash_attn_interface.py").exists()
    assert (site / "flash_attn_2_cuda.so").exists() and (site / "flash_attn/__init__.py").exists()
    assert (tmp_path / "ready/avx2-0123456789abcdef.so").read_bytes() == b"kernels"
    halves = b"".join((folder / PART).read_bytes() for folder in folders[1:])
    assert (site / MODEL_PACKAGE / MODEL_FILE).read_bytes() == halves
    assert halves.startswith(b"GGUF")


def test_every_stage_has_a_name_of_its_own():
    assert len({stage.name for stage in STAGES}) == len(STAGES)
