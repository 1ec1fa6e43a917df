// Answers as links: all that decides a text, and the text itself, in the part of an address that
// browsers send to no server. Its reader has a server compute the text again.

import { Conversation } from "./conversations.js";

const START = "#answer=";
const VERSION = 1;
const ROLES = new Set(["user", "assistant", "tool"]);
const TURN = ["role", "content", "files", "calls", "call", "reasoning"];
const ASKED = ["system", "max_tokens", "temperature", "top_p", "prediction", "documents",
  "response_format", "reasoning_effort", "tools", "tool_choice", "speculation"];

const picked = (from, names) => Object.fromEntries(
  names.filter((name) => from[name] !== undefined).map((name) => [name, from[name]]));

export const isLink = (hash) => hash.startsWith(START);

/** Whether a link to an answer could be verified: it is whole, and its seed gives one text. */
export const isShareable = (node, before) => node.whole && node.seed !== undefined && !node.calls
  && !node.asked.blend && Boolean(node.model)
  && before.every(({ files = [] }) => files.every(({ url }) => !url));  // no room for pictures

/** Return a link to an answer and the conversation before it. */
export async function linkOf(conversation, node) {
  const said = { version: VERSION, model: node.model, fingerprint: node.fingerprint,
    seed: node.seed, asked: picked(node.asked, ASKED),
    turns: conversation.path(node.parent).map((each) => picked(each, TURN)),
    answer: picked(node, ["content", "reasoning"]) };
  return location.href.split("#")[0] + START + await packed(JSON.stringify(said));
}

/** Return the conversation that a link holds, its answer marked as shared. Throws if it has none. */
export async function conversationIn(hash) {
  try {
    const { version, model, fingerprint, seed, asked, turns, answer } =
      JSON.parse(await unpacked(hash.slice(START.length)));
    if (version !== VERSION) throw new Error();
    const found = new Conversation({ link: hash });
    for (const turn of turns) found.add(found.leaf, picked(checked(turn), TURN));
    found.add(found.leaf, { ...checked({ ...answer, role: "assistant" }), model, fingerprint, seed,
      asked: picked(asked, ASKED), whole: true, shared: true,
      facts: ["shared with you", model, `seed ${seed}`, ...parameters(asked)].join(" · ") });
    return found;
  } catch {
    throw new Error("The link is damaged, or was cut.");
  }
}

/** Return the request whose answer must be the shared text; the text itself is its draft. */
export function requestAgain(request, node, model) {
  return { ...request, model, stream: false, seed: node.seed,
    ...(node.content && { prediction: { type: "content", content: node.content } }) };
}

function checked(turn) {
  const texts = [turn.content, ...(turn.files ?? []).flatMap(({ name, text }) => [name, text])];
  if (!ROLES.has(turn.role) || !texts.every((each) => typeof each === "string")) throw new Error();
  return turn;
}

function parameters({ temperature, top_p: topP, max_tokens: most, system }) {
  const numbers = { temperature, "top p": topP, "max tokens": most };
  return [...Object.entries(numbers).filter(([, value]) => value !== undefined)
    .map(([name, value]) => `${name} ${value}`), ...(system ? ["a system prompt"] : [])];
}

const through = (bytes, stream) =>
  new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer();

async function packed(text) {
  const bytes = new Uint8Array(await through(text, new CompressionStream("deflate-raw")));
  const letters = Array.from(bytes, (each) => String.fromCharCode(each)).join("");
  return btoa(letters).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

async function unpacked(letters) {
  const bytes = atob(letters.replaceAll("-", "+").replaceAll("_", "/"));
  const found = await through(Uint8Array.from(bytes, (each) => each.charCodeAt(0)),
    new DecompressionStream("deflate-raw"));
  return new TextDecoder("utf-8", { fatal: true }).decode(found);
}
