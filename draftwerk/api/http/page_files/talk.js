// The conversation on the page: questions, answers, calls of tools and their results.

import { $, announce, button, copy, element } from "./dom.js";
import { shownFile } from "./attachments.js";
import { wholeCalls } from "./conversations.js";
import { isShareable } from "./links.js";
import { difference } from "./settings.js";
import { Words } from "./words.js";

/** One answer, growing or kept. */
export class AnswerView {
  constructor(label) {
    this.words = new Words(label);
    this.title = element("h3", { hidden: true });
    this.before = element("div");
    this.after = element("div");
    this.passages = element("ul", { class: "passages", hidden: true, "aria-label": "Documents" });
    this.foot = element("div", { class: "foot" });
    this.bar = element("div", { class: "bar" });
    this.box = element("article", { class: "answer", "aria-label": label }, this.title,
      this.before, this.words.box, this.after, this.passages, this.foot, this.bar);
    this.calls = [];
  }

  /** Draw a reply, or what is kept of one. */
  draw({ content, reasoning, calls }) {
    if (reasoning.text) this.#drawReasoning(reasoning, !content.text && !calls.length);
    this.words.draw(content);
    calls.forEach((call, number) => this.#drawCall(call, number));
  }

  /** Show how each document was read, in words. */
  showPassages(facts = []) {
    this.passages.hidden = !facts.length;
    this.passages.replaceChildren(...facts.map((fact) => element("li", {}, fact)));
  }

  set isWaiting(value) {
    this.words.box.classList.toggle("waiting", value);
    this.box.setAttribute("aria-busy", String(value));
  }

  #drawReasoning(reasoning, open) {
    if (!this.reasoning) {
      this.reasoning = new Words("Reasoning");
      this.folded = element("details", { class: "reasoning" },
        element("summary", {}, "Reasoning"), this.reasoning.box);
      this.before.append(this.folded);
    }
    this.folded.open = open || this.folded.matches(":focus-within");
    this.reasoning.draw(reasoning);
  }

  #drawCall({ name, arguments: text }, number) {
    if (!this.calls[number]) {
      const said = element("pre", { tabindex: "0", role: "group", "aria-label": "Arguments" });
      const box = element("section", { class: "call", "aria-label": `Call of ${name}` },
        element("header", {}, element("span", {}, "calls"), element("b", {}, name)), said);
      this.calls[number] = { box, said };
      this.after.append(box);
    }
    this.calls[number].said.textContent = pretty(text.text);
  }

  fail(message) {
    this.foot.textContent = message;
    this.foot.classList.add("error");
    this.foot.scrollIntoView({ block: "nearest" });
  }
}

/** Return JSON with line breaks; what is cut stays as it is. */
function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** What is kept of a message, as it was drawn when it came. */
const asReply = (node) => ({
  content: { text: node.content,
    tokens: (node.traces ?? []).map(([end, origin]) => ({ end, origin })) },
  reasoning: { text: node.reasoning ?? "", tokens: [] },
  calls: (node.calls ?? []).map((call) => ({ ...call, arguments: { text: call.arguments } })),
});

/** Shows a conversation; `actions` is what its buttons do. */
export class Talk {
  constructor(actions) {
    this.actions = actions;
    this.views = new Map();  // of answers, by the message's id
    this.welcome = document.querySelector(".welcome");
  }

  /** Show a conversation from its first message to the one that is read. */
  show(conversation) {
    const boxes = [];
    const path = conversation.path();
    path.forEach((node) => boxes.push(this.#box(conversation, node)));
    const last = path.at(-1);
    if (last?.role === "assistant") this.#askResults(last, path);
    $("talk").replaceChildren(...(boxes.length ? boxes : [this.welcome]));
  }

  #box(conversation, node) {
    if (node.role === "user") return this.#question(conversation, node);
    if (node.role === "tool") return result(conversation, node);
    const other = conversation.nodes[node.beside];
    if (!other) return this.#answer(conversation, node).box;
    const pair = [node, other].sort((one, two) => one.place - two.place);
    const views = pair.map((each) => this.#answer(conversation, each));
    views.forEach((view, place) => {
      view.box.classList.toggle("chosen", pair[place].id === node.id);
      titled(view, place, pair);
    });
    return paired(views, verdict(...pair));
  }

  #question(conversation, node) {
    const bubble = element("div", { class: "bubble" }, node.content);
    const box = element("article", { class: "user", "aria-label": "You" },
      ...(node.files ?? []).map(shownFile), node.content ? bubble : "");
    box.append(element("div", { class: "bar" }, this.#versions(conversation, node),
      button("Edit", () => this.edit(node, box), { class: "quiet edit" })));
    return box;
  }

  /** Have a question written anew, in its place. */
  edit(node, box) {
    const field = element("textarea", { rows: "3", "aria-label": "Edit the message" });
    field.value = node.content;
    const before = [...box.childNodes];
    const cancel = () => {
      box.replaceChildren(...before);
      $("prompt").focus();
    };
    const send = () => {
      const text = field.value.trim();
      if (text || node.files) this.actions.edited(node, text);
    };
    field.onkeydown = (event) => {
      if (event.key === "Escape") cancel();
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      send();
    };
    box.replaceChildren(field, element("div", { class: "row" }, button("Cancel", cancel),
      button("Send", send, { class: "send" })));
    field.focus();
  }

  /** Edit the last question, if there is one. */
  editLast(conversation) {
    const node = conversation.path().findLast((each) => each.role === "user");
    const box = [...document.querySelectorAll("#talk > .user")].at(-1);
    if (node && box) this.edit(node, box);
  }

  #answer(conversation, node) {
    let view = this.views.get(node.id);
    if (!view) {
      view = new AnswerView("Answer");
      this.views.set(node.id, view);
    }
    view.isWaiting = false;
    view.draw(asReplyOnce(view, node));
    view.foot.textContent = node.facts;
    view.showPassages(node.passages);
    view.foot.classList.toggle("error", Boolean(node.failed));
    view.foot.classList.toggle("verified", Boolean(node.verified));
    view.calls.forEach(({ box }) => box.querySelector("form")?.remove());
    view.bar.replaceChildren(...this.#tools(conversation, node));
    return view;
  }

  * #tools(conversation, node) {
    const copied = button("Copy", () => copy(copied, node.content), { "aria-label": "Copy the answer" });
    const { actions } = this;
    yield this.#versions(conversation, node);
    yield copied;
    if (conversation.nodes[node.beside]) {
      if (conversation.leaf !== node.id) {
        yield button("Go on with this", () => actions.chosen(node.id), { class: "quiet prefer" });
      }
      if (node.place === 1) return;
    }
    if (node.shared) {
      yield button("Verify", () => actions.verified(node), { class: "verify" });
    }
    yield button("Regenerate", () => actions.again(node), { class: "quiet again" });
    if (node.whole && node.seed !== undefined && !node.beside && !node.calls
      && node.asked.speculation?.enabled !== false) {
      yield button("Check without guessing", () => actions.checked(node), { class: "quiet recheck" });
    }
    if (isShareable(node, conversation.path(node.parent))) {
      const share = button("Share", () => actions.shared(node, share), { class: "quiet share",
        title: "Copy a link to this answer, which its reader can verify" });
      yield share;
    }
  }

  #versions(conversation, node) {
    const all = conversation.versions(node.id).filter((each) => !each.place);
    const at = all.findIndex((each) => each.id === node.id || each.id === node.beside);
    if (all.length < 2 || node.place) return "";
    const go = (step) => () => this.actions.chosen(all[at + step].id);
    return element("span", { class: "versions", role: "group", "aria-label": "Versions" },
      button("‹", go(-1), { "aria-label": "Version before", disabled: at === 0 }),
      element("span", {}, `${at + 1} / ${all.length}`),
      button("›", go(1), { "aria-label": "Next version", disabled: at === all.length - 1 }));
  }

  /** Ask for the results of a message's calls. */
  #askResults(node, path) {
    const calls = wholeCalls(node);
    if (!calls.length) return;
    const view = this.views.get(node.id);
    const fields = calls.map((call, number) => {
      const field = element("textarea", { rows: "2", "aria-label": `Result of ${call.name}`,
        placeholder: "What it returns" });
      const form = element("form", {}, field);
      form.onsubmit = (event) => {
        event.preventDefault();
        this.actions.results(node, calls.map((each, at) => [each, fields[at].value]));
      };
      if (number === calls.length - 1) {
        form.append(element("button", { class: "results" },
          calls.length > 1 ? "Send the results" : "Send the result"));
      }
      view.calls[node.calls.indexOf(call)].box.append(form);
      return field;
    });
  }
}

/** Return a kept message to draw; one that came while this page was open has more to show. */
function asReplyOnce(view, node) {
  return view.reply ?? asReply(node);
}

function result(conversation, node) {
  const calls = conversation.path(node.id).flatMap((each) => each.calls ?? []);
  const name = calls.findLast((call) => call.id === node.call)?.name ?? "the tool";
  return element("article", { class: "call", "aria-label": `Result of ${name}` },
    element("header", {}, element("span", {}, "result of"), element("b", {}, name)),
    element("pre", { tabindex: "0", role: "group", "aria-label": "Result" }, node.content));
}

/** Return two answers side by side. */
export function paired(views, words = "") {
  return element("div", { class: "pair" }, ...views.map((view) => view.box),
    element("p", { class: "verdict" }, words));
}

/** Say above an answer of a pair what it was asked with. */
export function titled(view, place, pair) {
  const [one, other] = pair;
  view.title.hidden = false;
  view.title.textContent = place === 0
    ? "As set" : `With ${difference(one.asked, other.asked)}`.replace("With without", "Without");
}

/** Return in words how two answers compare. */
export function verdict(one, other) {
  if (!one.whole || !other.whole) return "";
  const how = difference(one.asked, other.asked);
  const with_ = how === "without guessing" ? how : `with ${how}`;
  if (one.content !== other.content) return `the text differs ${with_}: ${parting(one, other)}`;
  const times = other.seconds / one.seconds;
  const slower = times > 0 && Number.isFinite(times) && how.includes("guessing")
    ? `, ${times.toFixed(2)}× the time` : "";
  return `same text ${with_}${slower}`;
}

/** Return in words where two texts part. */
export function parting({ content: one }, { content: other }) {
  let at = 0;
  while (at < one.length && one[at] === other[at]) at += 1;
  if (!at) return "from the first word on";
  return `the two part after ${at} characters, at “…${one.slice(Math.max(0, at - 24), at).trim()}”`;
}

export const sayEnd = (reply) => announce(reply.error
  || `${reply.reason === "stopped" ? "Stopped. " : ""}Answer: ${reply.content.text.slice(0, 600)}`
  + (reply.calls.length ? ` Calls ${reply.calls.map((each) => each.name).join(", ")}.` : ""));
