// Conversations as trees of messages, and where the browser keeps them. Nothing here is shown.

import { withPictures } from "./pictures.js";

const INDEX = "draftwerk.conversations";
const PLACE = "draftwerk.conversation.";
const TITLE_MAX = 60;

const newId = () => Array.from(crypto.getRandomValues(new Uint8Array(9)),
  (each) => each.toString(36).padStart(2, "0")).join("");

/**
 * A message knows what it answers, so an edited question and an answer made again are siblings of
 * the old ones. `leaf` is the last message of what is read, and each message knows its answer there.
 */
export class Conversation {
  constructor({ id = newId(), title = "", updated = 0, leaf = null, nodes = {}, link } = {}) {
    Object.assign(this, { id, title, updated, leaf, nodes, link });
  }

  /** Its address: of a shared one the link, until something is added to it and it is kept. */
  get address() {
    return this.link ?? (this.isEmpty ? location.pathname : `#${this.id}`);
  }

  add(parent, message) {
    const node = { id: newId(), parent, ...message };
    this.nodes[node.id] = node;
    this.#read(node);
    this.leaf = node.id;
    if (!this.title && message.role === "user") {
      const named = message.content || message.files?.map(({ name }) => name).join(", ") || "";
      this.title = named.trim().replace(/\s+/g, " ").slice(0, TITLE_MAX);
    }
    return node;
  }

  /** Remove a message that nothing answers yet. */
  remove(id) {
    const { parent } = this.nodes[id];
    delete this.nodes[id];
    if (this.nodes[parent]?.read === id) delete this.nodes[parent].read;
    if (this.leaf === id) this.leaf = parent;
  }

  /** Return the messages from the first to `leaf`. */
  path(leaf = this.leaf) {
    const found = [];
    for (let at = leaf; at !== null; at = this.nodes[at].parent) found.unshift(this.nodes[at]);
    return found;
  }

  /** Return the versions of a message, itself among them, oldest first. */
  versions(id) {
    const { parent } = this.nodes[id];
    return Object.values(this.nodes).filter((each) => each.parent === parent);
  }

  /** Read on from a version of a message, as far as it was read last. */
  choose(id) {
    this.#read(this.nodes[id]);
    this.leaf = id;
    while (this.nodes[this.leaf].read) this.leaf = this.nodes[this.leaf].read;
  }

  #read(node) {
    if (node.parent) this.nodes[node.parent].read = node.id;
  }

  get isEmpty() {
    return Object.keys(this.nodes).length === 0;
  }
}

/** Return the messages of a path as chat completions take them. */
export function chatMessages(path, system) {
  const said = system ? [{ role: "system", content: system }] : [];
  for (const node of path) {
    if (node.role === "tool") {
      said.push({ role: "tool", tool_call_id: node.call, content: node.content });
    } else if (node.role === "user") {
      said.push({ role: "user", content: withPictures(withFiles(node), node.files) });
    } else {
      const calls = wholeCalls(node).map(({ id, name, arguments: text }) =>
        ({ id, type: "function", function: { name, arguments: text } }));
      said.push({ role: "assistant", content: node.content || (calls.length ? null : ""),
        ...(calls.length && { tool_calls: calls }),
        ...(calls.length && node.reasoning && { reasoning_content: node.reasoning }) });
    }
  }
  return said;
}

/** Return a question with its files before it, each between fences that it does not have. */
export function withFiles({ content, files = [] }) {
  const fenced = files.filter(({ url }) => !url).map(({ name, text }) => {
    const longest = Math.max(2, ...(text.match(/`{3,}/g) ?? []).map((each) => each.length));
    const fence = "`".repeat(longest + 1);
    return `File ${name}:\n${fence}\n${text.replace(/\n$/, "")}\n${fence}`;
  });
  return [...fenced, content].filter(Boolean).join("\n\n");
}

/** Return a message's calls whose arguments are whole: the last may have been cut. */
export function wholeCalls(node) {
  return (node.calls ?? []).filter(({ arguments: text }) => {
    try {
      return typeof JSON.parse(text) === "object";
    } catch {
      return false;
    }
  });
}

/** What the browser keeps: an index, and a conversation under each of its ids. */
export class Shelf {
  constructor(storage) {
    this.storage = storage;
  }

  /** Return id, title and time of each, the newest first. */
  list() {
    const found = this.#read(INDEX);
    return Array.isArray(found) ? found : [];
  }

  open(id) {
    const kept = this.#read(PLACE + id);
    return kept && typeof kept === "object" ? new Conversation(kept) : null;
  }

  /** Keep a conversation; the oldest others make room. Returns whether it fits. */
  keep(conversation) {
    conversation.updated = Date.now();
    delete conversation.link;
    const { id, title, updated } = conversation;
    const text = JSON.stringify(conversation);
    const others = this.list().filter((each) => each.id !== id);
    for (;;) {
      try {
        this.storage.setItem(PLACE + id, text);
        this.#write([{ id, title, updated }, ...others]);
        return true;
      } catch {
        const oldest = others.pop();
        if (!oldest) return false;
        this.forget(oldest.id);
      }
    }
  }

  forget(id) {
    this.storage.removeItem(PLACE + id);
    this.#write(this.list().filter((each) => each.id !== id));
  }

  #read(key) {
    try {
      return JSON.parse(this.storage.getItem(key));
    } catch {
      return null;
    }
  }

  #write(index) {
    if (index.length) this.storage.setItem(INDEX, JSON.stringify(index));
    else this.storage.removeItem(INDEX);
  }
}
