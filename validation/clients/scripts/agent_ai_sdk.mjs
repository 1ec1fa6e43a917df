// The Vercel AI SDK's `openai()`: three turns of a conversation, the first with two calls.

import { openai } from "@ai-sdk/openai";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const tools = {
  get_weather: tool({
    description: "Returns the weather of a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => `18 degrees in ${city}.`,
  }),
};
const model = openai(process.env.MODEL);
const messages = [];
const turn = async (content, ask) => {
  messages.push({ role: "user", content });
  const { text, finishReason, response } = await ask();
  if ((await finishReason) !== "stop") throw new Error(await finishReason);
  messages.push(...(await response).messages);
  console.log(await text);
};
const options = () => ({ model, messages, tools, stopWhen: stepCountIs(5) });
await turn("What is the weather in Paris and Rome?", () => generateText(options()));
await turn("And tomorrow?", async () => {
  const stream = streamText(options());
  await stream.consumeStream();
  return stream;
});
await turn("Thanks.", () => generateText(options()));
