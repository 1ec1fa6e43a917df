"""The reference agrees with the code."""

import ast
import re
from pathlib import Path

from docs.reference import FIELDS, PATH, reference
from docs.request_fields import fields
from draftwerk.api.shared.config import Settings
from draftwerk.api.shared.errors import CLOSE_CODES, CODES
from draftwerk.settings.setting_fields import fields_of
from tests.api.http import test_frames

ROOT = Path(__file__).parents[3]


def codes_in(source: str) -> set[str]:
    """Return the codes of errors that a module makes."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", "")
            given = [each.value for each in node.keywords if each.arg == "code"]
            if name == "refused":
                given += node.args[2:]
            found |= {each.value for each in given if isinstance(each, ast.Constant)}
    return found


def test_the_committed_file_is_what_the_code_generates() -> None:
    written = (ROOT / PATH).read_text(encoding="utf-8")
    assert written == reference(), "run: python -m docs.reference"
    listed = (ROOT / FIELDS).read_text(encoding="utf-8")
    assert listed == fields(), "run: python -m docs.reference"


def test_every_setting_has_a_row() -> None:
    row = re.compile(r"^\| `(?:--)?([\w-]+)` \|", re.MULTILINE)
    rows = row.findall(reference().replace("`MODEL`", "`model`"))
    assert {key.replace("-", "_") for key in rows} == {*fields_of(Settings)}


def test_every_code_of_an_error_is_explained_and_no_other() -> None:
    made = set[str]()
    for path in (ROOT / "draftwerk/api").rglob("*.py"):
        made |= codes_in(path.read_text(encoding="utf-8"))
    assert made == set(CODES)


def test_every_code_that_closes_a_socket_is_explained() -> None:
    source = (ROOT / "draftwerk/api/openai/responses/responses_socket.py").read_text(
        encoding="utf-8"
    )
    assert {int(code) for code in re.findall(r"\b(10[01]\d)\b", source)} <= set(CLOSE_CODES)
    tested = {code for _, code in test_frames.WRONG.values() if code not in (1005, 4321)}
    assert tested <= set(CLOSE_CODES)


def test_nothing_in_it_is_left_undescribed() -> None:
    said = reference() + fields()
    assert ": valid" not in said
    assert "or valid" not in said
    assert "`response_format`: `ResponseFormat`" in said
    assert "- `SloBody`: `ttft` string 1 to 32" in said
    assert "- `FlatFormat`: " in said and "`schema` any JSON" in said
    assert "`mailbox_depth{actor}`" in said
    assert "`mailbox_wait_seconds{actor}`" in said
    assert "- `response.output_text.delta`: " in said


def test_a_field_that_endpoints_share_stands_once() -> None:
    rows = [line for line in fields().splitlines() if line.startswith("- `")]
    assert len(rows) == len(set(rows)) > 100


def test_every_object_that_a_row_names_is_described_or_another_protocols() -> None:
    section = fields()
    named = set(re.findall(r"`([A-Z][a-z]\w+)`", section))
    described = set(re.findall(r"^- `([A-Z]\w+)`: ", section, re.MULTILINE))
    assert described <= named and len(described) > 15
    assert named - described == {
        "AnthropicMessage", "AnthropicTool", "AnthropicToolChoice", "TextInput", "ThinkingWish",
        "OutputConfig", "EmbedOptions", "OllamaMessage", "OllamaOptions", "OllamaTool", "ChatTool",
        "ChatToolChoice", "ConversationReference", "FlatTool", "FlatToolChoice", "InputMessage",
        "MessageCall", "ReasoningWish", "TextRequest",
    }  # fmt: skip
