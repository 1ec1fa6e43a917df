// openai for Node.

import OpenAI from "openai";
import { ASK_TOOL, HELLO, MODEL, TOOL, called, checkText, runAll, user } from "./harness.mjs";

const client = new OpenAI();
const SCHEMA = {
  type: "object",
  properties: {
    name: { enum: ["Paris", "Rome", "Oslo"] },
    people: { type: "integer", minimum: 0, maximum: 9999 },
  },
  required: ["name", "people"],
  additionalProperties: false,
};

const checkCity = (text) => {
  if (!SCHEMA.properties.name.enum.includes(JSON.parse(text).name)) throw new Error(text);
};

/** Check a call whose arguments are text; returns its result. */
const answered = ({ name, arguments: text }) => called(name, JSON.parse(text));

await runAll({
  async "chat"() {
    const reply = await client.chat.completions.create(
      { model: MODEL, messages: user(HELLO), max_tokens: 20 });
    checkText(reply.choices[0].message.content);
  },
  async "chat, streamed"() {
    const stream = client.chat.completions.stream(
      { model: MODEL, messages: user(HELLO), max_tokens: 20 });
    checkText(await stream.finalContent());
  },
  async "chat, structured"() {
    const reply = await client.chat.completions.create({ model: MODEL, messages: user(HELLO),
      response_format: { type: "json_schema", json_schema: { name: "city", schema: SCHEMA } } });
    checkCity(reply.choices[0].message.content);
  },
  async "chat, three calls"() {
    const messages = user(ASK_TOOL);
    const tools = [{ type: "function", function: TOOL }];
    for (let turn = 0; turn < 4; turn += 1) {
      const body = { model: MODEL, messages, tools, parallel_tool_calls: false, max_tokens: 100,
        tool_choice: turn < 3 ? "required" : "none" };
      const reply = turn === 1
        ? await client.chat.completions.stream(body).finalChatCompletion()
        : await client.chat.completions.create(body);
      const { message, finish_reason: reason } = reply.choices[0];
      if (turn === 3) return checkText(message.content);
      const [call] = message.tool_calls;
      if (reason !== "tool_calls" && reason !== "stop") throw new Error(reason);
      messages.push(message,
        { role: "tool", tool_call_id: call.id, content: answered(call.function) });
    }
  },
  async "chat, tools run by the client"() {
    let calls = 0;
    const runner = client.chat.completions.runTools({ model: MODEL, max_tokens: 100, seed: 1,
      messages: user(ASK_TOOL),
      tool_choice: { type: "function", function: { name: "get_weather" } },
      tools: [{ type: "function", function: { ...TOOL, parse: JSON.parse,
        function: (values) => {
          calls += 1;
          return called(TOOL.name, values);
        } } }] });
    await runner.done();
    if (calls < 1) throw new Error(`${calls} calls`);
  },
  async "responses"() {
    const made = await client.responses.create(
      { model: MODEL, input: HELLO, max_output_tokens: 20 });
    checkText(made.output_text);
  },
  async "responses, streamed"() {
    const stream = client.responses.stream(
      { model: MODEL, input: HELLO, max_output_tokens: 20 });
    checkText((await stream.finalResponse()).output_text);
  },
  async "responses, structured"() {
    const made = await client.responses.create({ model: MODEL, input: "Name a city.",
      text: { format: { type: "json_schema", name: "city", schema: SCHEMA } } });
    checkCity(made.output_text);
  },
  async "responses, three calls"() {
    const input = user(ASK_TOOL);
    const tools = [{ type: "function", strict: true, ...TOOL }];
    for (let turn = 0; turn < 4; turn += 1) {
      const body = { model: MODEL, input, tools, parallel_tool_calls: false,
        max_output_tokens: 100, tool_choice: turn < 3 ? "required" : "none" };
      const made = turn % 2 ? await client.responses.stream(body).finalResponse()
        : await client.responses.create(body);
      if (turn === 3) return checkText(made.output_text);
      const call = made.output.find((item) => item.type === "function_call");
      input.push(...made.output,
        { type: "function_call_output", call_id: call.call_id, output: answered(call) });
    }
  },
  async "responses, continued"() {
    const first = await client.responses.create(
      { model: MODEL, input: HELLO, max_output_tokens: 20 });
    const second = await client.responses.create({ model: MODEL, input: "Another.",
      previous_response_id: first.id, max_output_tokens: 20 });
    checkText(second.output_text);
  },
});
