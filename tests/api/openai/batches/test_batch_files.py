"""Lines of a batch are on disk as they come; half a line of a crash is taken away."""

from pathlib import Path

from draftwerk.api.openai.batches.batch_files import BatchFiles
from draftwerk.api.openai.batches.objects import AnswerLine, LineError


def line(name: str) -> AnswerLine:
    return AnswerLine(id=f"id {name}", custom_id=name, error=LineError("batch_expired", "late"))


def test_half_a_line_is_taken_away_and_the_rest_goes_on(tmp_path: Path) -> None:
    files = BatchFiles(tmp_path, "batch_1")
    files.open()
    files.add(line("a"))
    files.add(line("b"))
    files.close()
    path = files.path("error")
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    again = BatchFiles(tmp_path, "batch_1")
    again.open()
    assert again.answered == {"a"} and again.counts == [0, 1] and again.has_expired
    again.add(line("b"))
    again.close()
    assert path.read_bytes() == whole and again.size == len(whole)
    assert [kind for kind, _ in again.files()] == ["error"]
    again.drop()
    assert not path.exists()
