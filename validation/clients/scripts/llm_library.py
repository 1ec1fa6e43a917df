"""`llm`, as a library and as a command, with the model listed in its own file."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import ASK, ASK_TOOL, HELLO, MODEL, TOOL, URL, called, case, check_text, main

# Before `llm` is imported: this is where it reads its models from.
FOLDER = Path(tempfile.mkdtemp())
os.environ["LLM_USER_PATH"] = str(FOLDER)
(FOLDER / "extra-openai-models.yaml").write_text(
    f"- model_id: here\n  model_name: {MODEL}\n  api_base: {URL}\n"
    "  supports_schema: true\n  supports_tools: true\n"
)
import llm  # noqa: E402

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"enum": ["Paris", "Rome", "Oslo"]},
        "people": {"type": "integer", "minimum": 0, "maximum": 9999},
    },
    "required": ["name", "people"],
    "additionalProperties": False,
}
ARGUMENTS = '{"city": "Paris", "unit": "celsius"}'
CALL = f'<tool_call>\n{{"name": "get_weather", "arguments": {ARGUMENTS}}}\n</tool_call>'
SAY = (f"{ASK_TOOL} Answer with these words:\n{CALL}", f"Repeat:\n{CALL}")
model = llm.get_model("here")


@case("chat")
def chat() -> None:
    check_text(model.prompt(HELLO, stream=False, max_tokens=20, key="none").text())


@case("chat, streamed")
def chat_streamed() -> None:
    check_text("".join(model.prompt(HELLO, max_tokens=20, key="none")))


@case("chat, structured")
def chat_structured() -> None:
    for stream in (False, True):
        reply = model.prompt(ASK, schema=SCHEMA, stream=stream, key="none")
        assert json.loads(reply.text())["name"] in SCHEMA["properties"]["name"]["enum"]


@case("chat, three calls")
def chat_three_calls() -> None:
    """The library cannot require a call, so a small model is told word by word what to say."""
    done: list[str] = []

    def get_weather(city: str, unit: str) -> str:
        done.append(called("get_weather", {"city": city, "unit": unit}))
        return done[-1]

    tool = llm.Tool(
        name=TOOL["name"],
        description=TOOL["description"],
        input_schema=TOOL["parameters"],
        implementation=get_weather,
    )
    for seed in range(20):
        talk = model.conversation(tools=[tool], chain_limit=4)
        options = {"seed": seed, "max_tokens": 60, "temperature": 0.4 * (seed % 3)}
        chain = talk.chain(SAY[seed % 2], options=options, key="none", stream=bool(seed % 2))
        try:
            "".join(chain)
        except ValueError as error:
            assert "Chain limit" in str(error), error
        if len(done) >= 3:
            return
    raise AssertionError(f"{len(done)} calls")


@case("the command")
def command() -> None:
    said = subprocess.run(
        [Path(sys.executable).parent / "llm", "-m", "here", "-o", "max_tokens", "20", HELLO],
        env={**os.environ, "OPENAI_API_KEY": "none"},
        capture_output=True,
        text=True,
        check=True,
    )
    check_text(said.stdout)


main()
