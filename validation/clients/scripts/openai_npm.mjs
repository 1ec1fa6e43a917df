// openai for Node.

import OpenAI from "openai";

const client = new OpenAI();
const { MODEL } = process.env;
const HELLO = [{ role: "user", content: "Name a river." }];
const SCHEMA = {
  type: "object",
  properties: {
    name: { enum: ["Paris", "Rome", "Oslo"] },
    people: { type: "integer", minimum: 0, maximum: 9999 },
  },
  required: ["name", "people"],
  additionalProperties: false,
};

const checkText = (text) => {
  if (typeof text !== "string" || !text.trim()) throw new Error(`no text: ${text}`);
};
const checkCity = (text) => {
  if (!SCHEMA.properties.name.enum.includes(JSON.parse(text).name)) throw new Error(text);
};

const cases = {
  async "chat"() {
    const reply = await client.chat.completions.create(
      { model: MODEL, messages: HELLO, max_tokens: 20 });
    checkText(reply.choices[0].message.content);
  },
  async "chat, streamed"() {
    const stream = client.chat.completions.stream(
      { model: MODEL, messages: HELLO, max_tokens: 20 });
    checkText(await stream.finalContent());
  },
  async "chat, structured"() {
    const reply = await client.chat.completions.create({ model: MODEL, messages: HELLO,
      response_format: { type: "json_schema", json_schema: { name: "city", schema: SCHEMA } } });
    checkCity(reply.choices[0].message.content);
  },
  async "chat, tools"() {
    const tool = { type: "function", function: { name: "city", parameters: SCHEMA } };
    await client.chat.completions.create({ model: MODEL, messages: HELLO, tools: [tool] });
  },
  async "responses"() {
    const made = await client.responses.create(
      { model: MODEL, input: "Name a river.", max_output_tokens: 20 });
    checkText(made.output_text);
  },
  async "responses, streamed"() {
    const stream = client.responses.stream(
      { model: MODEL, input: "Name a river.", max_output_tokens: 20 });
    checkText((await stream.finalResponse()).output_text);
  },
  async "responses, structured"() {
    const made = await client.responses.create({ model: MODEL, input: "Name a city.",
      text: { format: { type: "json_schema", name: "city", schema: SCHEMA } } });
    checkCity(made.output_text);
  },
  async "responses, continued"() {
    const first = await client.responses.create(
      { model: MODEL, input: "Name a river.", max_output_tokens: 20 });
    const second = await client.responses.create({ model: MODEL, input: "Another.",
      previous_response_id: first.id, max_output_tokens: 20 });
    checkText(second.output_text);
  },
};

for (const [name, run] of Object.entries(cases)) {
  let outcome = "passed", words = "";
  try {
    await run();
  } catch (error) {
    const said = String(error.message);
    const refused = said.includes("not supported by this server; use ");
    outcome = refused ? "refused" : "failed";
    words = refused ? said.slice(said.indexOf("`")).replace(/\.$/, "") : `${error.name}: ${said}`;
  }
  console.log(JSON.stringify({ case: name, outcome, words }));
}
