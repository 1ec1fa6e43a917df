// The two ways a request is sent: chat completions over SSE, Responses over a WebSocket.

import { $ } from "./dom.js";
import { headers } from "./settings.js";

const AWAY = "The server did not answer.", LOST = "the connection to the server was lost";
const START = "chatcmpl-";
const AGAIN_MS = 300, TRIES = 4;

const failure = (body, status) => Object.assign(
  new Error(body?.error?.message ?? `HTTP ${status}`), { isServers: true, status });

/** Fetch, and say in words where no server answers. */
async function fetched(address, more) {
  try {
    return await fetch(address, more);
  } catch (error) {
    throw error.name === "AbortError" ? error : Object.assign(new Error(AWAY), { isAway: true });
  }
}

/** Fill a reply from the server; the chosen transport's errors are thrown. */
export function fill(reply, stop, changed) {
  return ($("transport").value === "ws" ? overSocket : overSse)(reply, stop, changed);
}

async function overSse(reply, stop, changed) {
  const body = { ...reply.request, logprobs: true, top_logprobs: 3,
    include: ["token_origins"], stream_options: { include_usage: true, resumable: true } };
  const id = crypto.getRandomValues(new Uint32Array(4)).join("-");
  reply.stream = START + id;
  await readAll(reply, "/v1/chat/completions", { method: "POST", signal: stop,
    headers: { ...headers(), "x-request-id": id }, body: JSON.stringify(body) }, changed);
}

/** Read an answer that was begun before this page, from its first event on. */
export async function goOn(reply, stop, changed) {
  await readAll(reply, `/v1/streams/${reply.stream}`, { headers: headers(), signal: stop }, changed);
}

async function readAll(reply, address, more, changed) {
  try {
    await readEvents(reply, await fetched(address, more), changed);
  } catch (error) {
    if (error.name === "AbortError") endStream(reply.stream);
    throw error;
  }
}

/** A stream outlives its connection: have it ended. It may not be known yet. */
async function endStream(stream) {
  for (let tries = 0; tries < TRIES; tries += 1) {
    const reply = await fetch(`/v1/streams/${stream}`, { method: "DELETE", headers: headers() })
      .catch(() => null);
    if (reply?.status !== 404) return;
    await new Promise((wake) => setTimeout(wake, AGAIN_MS));
  }
}

async function readEvents(reply, answer, changed) {
  if (!answer.ok) throw failure(await answer.json().catch(() => null), answer.status);
  let rest = "", reason = "", metrics = null;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await reader.read().catch((error) => {
      throw error.name === "AbortError" ? error : Object.assign(new Error(LOST), { isAway: true });
    });
    if (done) break;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const data = part.slice(part.indexOf("data: ") + 6);  // behind its number
      if (!data.startsWith("{")) continue;
      const chunk = JSON.parse(data);
      if (chunk.error) throw failure(chunk);
      metrics = chunk.metrics ?? metrics;
      reply.fingerprint = chunk.system_fingerprint ?? reply.fingerprint;
      reply.approximations = chunk.usage?.approximations ?? reply.approximations;
      reply.segments = chunk.usage?.prompt_tokens_details?.segments ?? reply.segments;
      for (const choice of chunk.choices) {
        reply.takeTokens(choice.logprobs?.content ?? [], choice.origins ?? []);
        addDelta(reply, choice.delta);
        reason = choice.finish_reason ?? reason;
      }
      changed();
    }
  }
  reply.end(reason, metrics);
}

function addDelta(reply, { reasoning_content: reasoning, content, tool_calls: calls }) {
  reply.say(reply.reasoning, reasoning);
  reply.say(reply.content, content);
  for (const { index, id, function: called } of calls ?? []) {
    if (id) reply.call(id, called.name);
    reply.say(reply.calls[index].arguments, called.arguments);
  }
}

function overSocket(reply, stop, changed) {
  const protocols = $("key").value
    ? ["draftwerk", `openai-insecure-api-key.${$("key").value}`] : [];
  const url = new URL("/v1/responses", location.href.replace(/^http/, "ws"));
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url, protocols);
    let last = "";
    stop.addEventListener("abort", () => {
      if (socket.readyState === WebSocket.OPEN) {
        socket.send(JSON.stringify({ type: "response.cancel" }));
      } else {
        socket.close();
        reject(new DOMException("", "AbortError"));
      }
    }, { once: true });
    socket.onopen = () => socket.send(JSON.stringify(
      { type: "response.create", ...responsesBody(reply.request) }));
    socket.onclose = (event) =>
      last || reject(new Error(`The socket closed (${event.code} ${event.reason}).`));
    socket.onmessage = ({ data }) => {
      const event = JSON.parse(data);
      if (addEvent(reply, event)) return changed();
      if (event.type === "error") reject(failure(event));
      else if (event.type === "response.failed") reject(failure(event.response));
      else if (/^response\.(completed|incomplete)$/.test(event.type)) {
        reply.fingerprint = event.response.system_fingerprint;
        reply.approximations = event.response.usage?.approximations ?? [];
        reply.segments = event.response.usage?.input_tokens_details.segments ?? [];
        reply.end(event.response.status, event.response.metrics);
        resolve();
      } else return;
      last = event.type;
      socket.close();
    };
  });
}

/** Add an event to a reply; returns whether it brought something. */
function addEvent(reply, event) {
  switch (event.type) {
    case "response.output_text.delta":
      reply.takeTokens(event.logprobs ?? [], event.origins ?? []);
      reply.say(reply.content, event.delta);
      return true;
    case "response.reasoning_text.delta":
      reply.say(reply.reasoning, event.delta);
      return true;
    case "response.output_item.added":
      if (event.item.type !== "function_call") return false;
      reply.call(event.item.call_id, event.item.name);
      return true;
    case "response.function_call_arguments.delta":
      reply.say(reply.calls.at(-1).arguments, event.delta);
      return true;
    default:
      return false;
  }
}

/** Return a request as Responses takes it. */
export function responsesBody({ messages, max_tokens, response_format: format, tools,
  reasoning_effort: effort, stream, ...rest }) {
  return { ...rest, input: messages.flatMap(items), max_output_tokens: max_tokens,
    ...(format && { text: { format } }), ...(effort && { reasoning: { effort } }),
    ...(tools && { tools: tools.map((each) => ({ type: "function", ...each.function })) }),
    top_logprobs: 3, include: ["token_origins", "message.output_text.logprobs"] };
}

function items({ role, content, tool_calls: calls, tool_call_id: call }) {
  if (role === "tool") return [{ type: "function_call_output", call_id: call, output: content }];
  const said = content || !calls ? [{ role, content: content ?? "" }] : [];
  return [...said, ...(calls ?? []).map((each) => ({ type: "function_call", call_id: each.id,
    name: each.function.name, arguments: each.function.arguments }))];
}
