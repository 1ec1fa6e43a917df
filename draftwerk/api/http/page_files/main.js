// The page: it asks, shows answers as they come, and keeps what was said in the browser.

import { Attachments } from "./attachments.js";
import { ChatList } from "./chats.js";
import { chatMessages, Conversation, Shelf } from "./conversations.js";
import { startCopying } from "./copying.js";
import { $, announce, button, copy } from "./dom.js";
import { showFigures } from "./figures.js";
import { conversationIn, isLink, linkOf, requestAgain } from "./links.js";
import { ModelList } from "./models.js";
import { Presence } from "./presence.js";
import { Reply } from "./reply.js";
import { ServerPanel } from "./server.js";
import { anySeed, asked, askedBeside, headers, startSettings } from "./settings.js";
import { AnswerView, paired, parting, sayEnd, Talk, titled, verdict } from "./talk.js";
import { fill, goOn } from "./transport.js";

const NEAR = 160;  // pixels from the end within which the talk scrolls along
const IDEAS = ["Write a list of five rivers in Europe.", "Explain a queue with a short example in Python.",
  "Compare tea and coffee in a table."];

const CUT = "cut: the page was closed before the answer ended";
const BUSY = "An answer is being written. Escape ends it; your message stays here, to be sent then.";
const KEPT_EACH_MS = 1000;
const UNSENT = "draftwerk.unsent";  // what was typed, for as long as the tab is open

const shelf = new Shelf(localStorage);
const models = new ModelList();
const presence = new Presence(models);
let conversation = new Conversation();
let running = null;
let keepUnfinished = () => {};
let isLeaving = false;

const talk = new Talk({
  edited: (node, text) => !running && send({ content: text, files: node.files }, node.parent),
  again: (node) => {
    const settings = running ? null : chosenSettings();
    if (settings) ask(conversation.nodes[node.parent], { ...settings, seed: anySeed() }, null);
  },
  checked: (node) => !running && check(node),
  shared: async (node, source) => copy(source, await linkOf(conversation, node)),
  verified: (node) => !running && verify(node),
  chosen: (id) => {
    if (running) return;
    conversation.choose(id);
    keep(conversation);
    talk.show(conversation);
  },
  results: (node, given) => {
    const settings = running ? null : chosenSettings();
    if (!settings) return;
    let parent = node;
    for (const [call, content] of given) {
      parent = conversation.add(parent.id, { role: "tool", call: call.id, content });
    }
    ask(parent, settings);
  },
});

const chats = new ChatList(shelf, {
  opened: (id) => open(shelf.open(id) ?? new Conversation()),
  removed: (id) => (id === conversation.id ? open(new Conversation()) : chats.show(conversation.id)),
});

// --- asking ----------------------------------------------------------------------------------

/** Show a conversation that has more in it, if it is the one that is open. */
function showAgain(mine) {
  if (conversation !== mine) return;
  talk.show(mine);
  if (nearTheEnd()) scrollDown();
}

function requestOf(path, { system, ...rest }) {
  return { model: $("model").dataset.name, messages: chatMessages(path, system), ...rest, stream: true };
}

/** Have a message answered: once, or by two settings with one seed; or read streams to their end. */
async function ask(parent, one, other = $("compare").checked ? askedBeside(one) : null, streams = []) {
  if (other) one.seed = other.seed = one.seed ?? anySeed();
  const mine = conversation;
  mine.leaf = parent.id;
  keep(mine);
  talk.show(mine);
  const wishes = other ? [one, other] : [one];
  const views = wishes.map(() => new AnswerView("Answer"));
  $("talk").append(other ? paired(views) : views[0].box);
  if (other) views.forEach((view, place) => titled(view, place, wishes.map((each) => ({ asked: each }))));
  const replies = await run(views, wishes.map((each) => requestOf(mine.path(parent.id), each)),
    (unfinished) => keepCut(mine, parent, unfinished, wishes), streams);
  const kept = replies.map((reply, place) =>
    reply.isEmpty && !reply.isWhole ? null : keptOf(mine, parent, reply, wishes[place], views[place]));
  const [first] = kept.filter(Boolean);
  if (!first) return false;
  if (kept.length === 2 && kept.every(Boolean)) beside(...kept);
  mine.choose(first.id);
  keep(mine);
  showAgain(mine);
  return true;
}

function keptOf(mine, parent, reply, { system }, view) {
  const node = mine.add(parent.id, { ...reply.kept({ system }), failed: Boolean(reply.error) });
  view.reply = reply;
  talk.views.set(node.id, view);
  return node;
}

/** Keep what has come of answers so far, as cut: whoever closes the page finds it there. */
function keepCut(mine, parent, replies, wishes) {
  if (!$("keep").checked) return;
  const copy = new Conversation(structuredClone({ ...mine }));
  const nodes = replies.map((reply, place) => copy.add(parent.id,
    { ...reply.kept({ system: wishes[place].system }), stream: reply.stream, whole: false,
      failed: true, facts: CUT }));
  if (nodes.length === 2) beside(...nodes);
  copy.choose(nodes[0].id);
  shelf.keep(copy);
}

/** Go on with an answer that was being written when the page was left. */
async function goOnWith(mine) {
  const node = mine.nodes[mine.leaf];
  if (!node?.stream || node.whole) return;
  const before = structuredClone({ ...mine });
  const cut = [node, mine.nodes[node.beside]].filter(Boolean)
    .sort((one, other) => (one.place ?? 0) - (other.place ?? 0));
  for (const { id } of cut) mine.remove(id);
  const [one, other] = cut.map(({ asked: wish }) => wish);
  const went = await ask(mine.nodes[node.parent], one, other ?? null, cut.map(({ stream }) => stream));
  if (went || conversation !== mine) return;
  open(new Conversation(before));
  keep(conversation);
}

function beside(one, other) {
  Object.assign(one, { beside: other.id, place: 0 });
  Object.assign(other, { beside: one.id, place: 1 });
}

/** Ask the same without guessing, beside the answer: the text must be the same, only slower. */
async function check(node) {
  const mine = conversation;
  const { system, ...rest } = node.asked;
  const one = { ...rest, system, seed: node.seed };
  const plain = { ...one, speculation: { enabled: false } };
  const parent = mine.nodes[node.parent];
  const view = new AnswerView("Answer without guessing");
  const kept = talk.views.get(node.id);
  const place = document.createComment("");
  kept.box.replaceWith(place);
  const pair = paired([kept, view]);
  place.replaceWith(pair);
  titled(kept, 0, [{ asked: one }, { asked: plain }]);
  titled(view, 1, [{ asked: one }, { asked: plain }]);
  const [reply] = await run([view], [requestOf(mine.path(parent.id), plain)]);
  if (!reply.isWhole) return;
  beside(node, keptOf(mine, parent, reply, plain, view));
  mine.choose(node.id);
  keep(mine);
  showAgain(mine);
  announce(verdict(node, mine.nodes[node.beside]));
}

/**
 * Run requests side by side, each into its view; returns the replies when all have ended. Until
 * then `unfinished` is called with them now and then, and when the page is left.
 */
async function run(views, requests, unfinished = () => {}, streams = []) {
  const stop = new AbortController();
  running = stop;
  $("go").textContent = "Stop";
  announce("Answering");
  scrollDown();
  const follow = setInterval(() => nearTheEnd() && scrollDown(), 120);
  const replies = requests.map((request, at) => new Reply(structuredClone(request), streams[at]));
  keepUnfinished = () => unfinished(replies);
  const keeping = setInterval(keepUnfinished, KEPT_EACH_MS);
  await Promise.all(replies.map((reply, at) => runOne(reply, views[at], stop.signal)));
  clearInterval(follow);
  clearInterval(keeping);
  keepUnfinished = () => {};
  $("hint").textContent = "";
  if (nearTheEnd()) scrollDown();
  running = null;
  $("go").textContent = "Send";
  sayEnd(replies[0]);
  return replies;
}

async function runOne(reply, view, stop) {
  view.isWaiting = true;
  let frame = 0;
  const draw = () => {
    frame = 0;
    view.draw(reply);
    showFigures(reply);
  };
  try {
    const changed = () => { frame ||= requestAnimationFrame(draw); };
    await (reply.isOld ? goOn : fill)(reply, stop, changed);
  } catch (error) {
    if (isLeaving) await new Promise(() => {});  // what is kept of it stands
    if (error.status === 401) presence.askKey();
    if (error.isAway) presence.greet();
    if (error.name === "AbortError") reply.end("stopped", null);
    else reply.error = reply.isEmpty || error.isServers ? error.message : `cut: ${error.message}`;
  }
  cancelAnimationFrame(frame);
  draw();
  view.isWaiting = false;
  if (reply.error) view.fail(reply.error);
  else {
    const { facts, passages } = reply.kept();
    view.foot.textContent = facts;
    view.showPassages(passages);
  }
}

/** Return what the settings ask for; null, and the reason at the top, if they make no sense. */
function chosenSettings() {
  try {
    $("problem").textContent = "";
    return asked();
  } catch (error) {
    $("problem").textContent = error.message;
    return null;
  }
}

/** Ask something after the message `parent`; what fails is given back. */
async function send({ content, files }, parent = conversation.leaf) {
  const mine = conversation;
  const settings = chosenSettings();
  const question = settings && mine.add(parent, { role: "user", content, files });
  if (settings && await ask(question, settings)) return;
  if (question) {
    mine.remove(question.id);
    keep(mine);
  }
  if (conversation !== mine || $("prompt").value) return;
  $("prompt").value = content;  // to be sent again
  keepUnsent();
  attachments.give(files ?? []);
  scrollDown();  // to the reason
}

/** Have this server compute a shared answer again, and say whether it is the same text. */
async function verify(node) {
  const mine = conversation;
  const view = talk.views.get(node.id);
  view.isWaiting = true;
  const found = await verdictOn(mine, node).catch(({ message }) => ({ failed: true, facts: message }));
  view.isWaiting = false;
  Object.assign(node, found, { facts: `${node.facts.split(" — ")[0]} — ${found.facts}` });
  showAgain(mine);
  announce(found.facts);
}

async function verdictOn(mine, node) {
  const no = (facts) => ({ failed: true, facts });
  const model = models.like(node.model, node.fingerprint);
  if (!model) return no(`not verified: this server has no model ${node.model}`);
  const { system, ...rest } = node.asked;
  const request = requestAgain(requestOf(mine.path(node.parent), { system, ...rest }), node, model.id);
  const reply = await fetch("/v1/chat/completions",
    { method: "POST", headers: headers(), body: JSON.stringify(request) });
  const body = await reply.json();
  if (!reply.ok) return no(`not verified: ${body.error?.message ?? `HTTP ${reply.status}`}`);
  const [there, here] = [node.fingerprint ?? "", body.system_fingerprint ?? ""];
  if (there !== here) {
    return no(`not verified: other weights, settings or numbers (there ${there}, here ${here})`);
  }
  const { content, reasoning_content: reasoning } = body.choices[0].message;
  if ((reasoning ?? undefined) !== node.reasoning) return no("another text: the reasoning differs");
  return content === node.content ? { failed: false, verified: true,
    facts: "verified: this server computes the same text" }
    : no(`another text: ${parting(node, { content: content ?? "" })}`);
}

// --- the talk and its place in the browser ------------------------------------------------------

const scrollDown = () => { $("talk").scrollTop = $("talk").scrollHeight; };
const nearTheEnd = () => {
  const { scrollTop, clientHeight, scrollHeight } = $("talk");
  return scrollHeight - scrollTop - clientHeight < NEAR;
};

function keep(mine) {
  if (!$("keep").checked) return;
  if (mine.isEmpty) shelf.forget(mine.id);
  else if (!shelf.keep(mine)) announce("This conversation is too long to be kept.");
  if (mine === conversation) history.replaceState(null, "", mine.address);
  chats.show(conversation.id);
}

/** Go to a conversation; what runs is stopped. */
function open(other) {
  running?.abort();
  conversation = other;
  talk.views.clear();
  history.replaceState(null, "", other.address);
  talk.show(other);
  chats.show(other.id);
  scrollDown();
  $("prompt").focus();
}

/** Go to the conversation that the address names, or holds. */
async function openNamed() {
  const { hash } = location;
  if (!isLink(hash)) {
    open(shelf.open(hash.slice(1)) ?? new Conversation());
    return goOnWith(conversation);
  }
  try {
    open(await conversationIn(hash));
  } catch (error) {
    open(new Conversation());
    $("problem").textContent = error.message;
  }
}
addEventListener("hashchange", openNamed);

// --- the fields ----------------------------------------------------------------------------------

const attachments = new Attachments(() => requestOf([...conversation.path(), written()], asked()));

/** Return the message that is being written, with its files; null if there is neither. */
function written() {
  const content = $("prompt").value.trim();
  const { files } = attachments;
  if (!content && !files.length) return null;
  return { role: "user", content, files: files.length ? files : undefined };
}

function keepUnsent() {
  sessionStorage.setItem(UNSENT, $("prompt").value);
}

$("form").onsubmit = (event) => {
  event.preventDefault();
  if (running) return running.abort();
  const question = written();
  if (!question) return;
  $("prompt").value = "";
  keepUnsent();
  attachments.give([]);
  send(question);
};
$("prompt").onkeydown = (event) => {
  if (event.key === "ArrowUp" && !$("prompt").value && !running) {
    event.preventDefault();
    talk.editLast(conversation);
  }
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  if (!running) $("form").requestSubmit();
  else if (written()) $("hint").textContent = BUSY;
};
$("prompt").oninput = keepUnsent;
addEventListener("pagehide", () => {
  keepUnfinished();
  isLeaving = true;
});
addEventListener("pageshow", ({ persisted }) => persisted && location.reload());
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && running && !$("shown").open) running.abort();
});
$("fresh").onclick = () => open(new Conversation());
$("ideas").append(...IDEAS.map((idea) => button(idea, () => {
  $("prompt").value = idea;
  $("form").requestSubmit();
}, { class: "idea" })));

startCopying(() => {
  const path = conversation.path();
  const last = path.findLastIndex((node) => node.role === "user");
  const next = written() ?? (last < 0 && { role: "user", content: "Hello!" });
  return requestOf(next ? [...path, next] : path.slice(0, last + 1), asked());
});

startSettings((changed) => {
  $("talk").classList.toggle("coloured", $("colours").checked);
  if ((changed === "markdown" || changed === "reset") && !running) talk.show(conversation);
});

new ServerPanel(() => models.refresh());

$("prompt").value = sessionStorage.getItem(UNSENT) ?? "";
openNamed();
presence.greet();
