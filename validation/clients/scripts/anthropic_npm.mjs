// @anthropic-ai/sdk for Node.

import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic();
const { MODEL } = process.env;
const HELLO = [{ role: "user", content: "Name a river." }];
const QUESTION = [{ role: "user", content: "What is the weather in Paris?" }];
const TOOL = {
  name: "get_weather",
  description: "Returns the weather of a city.",
  input_schema: {
    type: "object",
    properties: {
      city: { type: "string", maxLength: 20 },
      unit: { type: "string", enum: ["celsius", "fahrenheit"] },
    },
    required: ["city", "unit"],
    additionalProperties: false,
  },
};

const checkText = (text) => {
  if (typeof text !== "string" || !text.trim()) throw new Error(`no text: ${text}`);
};
const called = ({ name, input: { city, unit, ...rest } }) => {
  const valid = name === TOOL.name && typeof city === "string" && !Object.keys(rest).length
    && TOOL.input_schema.properties.unit.enum.includes(unit);
  if (!valid) throw new Error(`${name}: ${city}, ${unit}`);
  return "18 degrees and rain.";
};

const cases = {
  async "message"() {
    const reply = await client.messages.create({ model: MODEL, max_tokens: 20, messages: HELLO });
    checkText(reply.content[0].text);
  },
  async "message, streamed"() {
    const stream = client.messages.stream({ model: MODEL, max_tokens: 20, messages: HELLO });
    let text = "";
    stream.on("text", (delta) => { text += delta; });
    if (await stream.finalText() !== text) throw new Error("the deltas are not the text");
    checkText(text);
  },
  async "three calls"() {
    const messages = [...QUESTION];
    for (let turn = 0; turn < 4; turn += 1) {
      const body = { model: MODEL, max_tokens: 100, messages, tools: [TOOL],
        tool_choice: turn < 3 ? { type: "any", disable_parallel_tool_use: true }
          : { type: "none" } };
      const reply = turn % 2 ? await client.messages.stream(body).finalMessage()
        : await client.messages.create(body);
      if (turn === 3) return checkText(reply.content[0].text);
      const [use] = reply.content;
      if (reply.stop_reason !== "tool_use") throw new Error(reply.stop_reason);
      messages.push({ role: "assistant", content: reply.content },
        { role: "user", content: [
          { type: "tool_result", tool_use_id: use.id, content: called(use) }] });
    }
  },
  async "structured, by the input of a tool"() {
    const reply = await client.messages.create({ model: MODEL, max_tokens: 100, messages: QUESTION,
      tools: [{ ...TOOL, strict: true }], tool_choice: { type: "tool", name: TOOL.name } });
    called(reply.content[0]);
  },
  async "tokens counted"() {
    const found = await client.messages.countTokens({ model: MODEL, messages: HELLO });
    if (!(found.input_tokens > 5)) throw new Error(`${found.input_tokens} tokens`);
  },
};

for (const [name, run] of Object.entries(cases)) {
  let outcome = "passed", words = "";
  try {
    await run();
  } catch (error) {
    outcome = "failed";
    words = `${error.name}: ${error.message}`.slice(0, 160);
  }
  console.log(JSON.stringify({ case: name, outcome, words }));
}
