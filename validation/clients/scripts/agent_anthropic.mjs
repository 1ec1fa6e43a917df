// The tool runner of Anthropic's TypeScript SDK: one question, two calls, an answer.

import Anthropic from "@anthropic-ai/sdk";
import { betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import { z } from "zod";

const weather = betaZodTool({
  name: "get_weather",
  description: "Returns the weather of a city.",
  inputSchema: z.object({ city: z.string() }),
  run: ({ city }) => `18 degrees in ${city}.`,
});
const message = await new Anthropic().beta.messages.toolRunner({
  model: process.env.MODEL,
  max_tokens: 1000,
  tools: [weather],
  messages: [{ role: "user", content: "What is the weather in Paris and Rome?" }],
});
if (message.stop_reason !== "end_turn") throw new Error(message.stop_reason);
console.log(message.content.map(({ text }) => text).join(""));
