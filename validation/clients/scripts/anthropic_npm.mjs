// @anthropic-ai/sdk for Node.

import Anthropic from "@anthropic-ai/sdk";
import { ASK_TOOL, HELLO, MODEL, TOOL, called, checkText, runAll, user } from "./harness.mjs";

const client = new Anthropic();
const { parameters, ...named } = TOOL;
const ANTHROPIC_TOOL = { ...named, input_schema: parameters };

await runAll({
  async "message"() {
    const reply = await client.messages.create(
      { model: MODEL, max_tokens: 20, messages: user(HELLO) });
    checkText(reply.content[0].text);
  },
  async "message, streamed"() {
    const stream = client.messages.stream({ model: MODEL, max_tokens: 20, messages: user(HELLO) });
    let text = "";
    stream.on("text", (delta) => { text += delta; });
    if (await stream.finalText() !== text) throw new Error("the deltas are not the text");
    checkText(text);
  },
  async "three calls"() {
    const messages = user(ASK_TOOL);
    for (let turn = 0; turn < 4; turn += 1) {
      const body = { model: MODEL, max_tokens: 100, messages, tools: [ANTHROPIC_TOOL],
        tool_choice: turn < 3 ? { type: "any", disable_parallel_tool_use: true }
          : { type: "none" } };
      const reply = turn % 2 ? await client.messages.stream(body).finalMessage()
        : await client.messages.create(body);
      if (turn === 3) return checkText(reply.content[0].text);
      const [use] = reply.content;
      if (reply.stop_reason !== "tool_use") throw new Error(reply.stop_reason);
      messages.push({ role: "assistant", content: reply.content },
        { role: "user", content: [
          { type: "tool_result", tool_use_id: use.id, content: called(use.name, use.input) }] });
    }
  },
  async "structured, by the input of a tool"() {
    const reply = await client.messages.create({ model: MODEL, max_tokens: 100,
      messages: user(ASK_TOOL), tools: [{ ...ANTHROPIC_TOOL, strict: true }],
      tool_choice: { type: "tool", name: TOOL.name } });
    const [use] = reply.content;
    called(use.name, use.input);
  },
  async "tokens counted"() {
    const found = await client.messages.countTokens({ model: MODEL, messages: user(HELLO) });
    if (!(found.input_tokens > 5)) throw new Error(`${found.input_tokens} tokens`);
  },
});
