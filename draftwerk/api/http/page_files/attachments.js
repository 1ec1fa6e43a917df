// Files that go with the next message: read here, counted by the server, put before the text.

import { $, button, element } from "./dom.js";
import { isPicture, pictureOf, thumbnail, withPictures } from "./pictures.js";
import { headers } from "./settings.js";

const BYTES_MAX = 2 ** 20;  // of one file; more fits into no model's context here
const COUNT_AFTER_MS = 400;  // without a key pressed

const counted = (tokens) => (tokens === undefined ? "" : `${tokens.toLocaleString("en")} tokens`);

/** The files beside the message that is being written; `whole` returns its request so far. */
export class Attachments {
  constructor(whole) {
    Object.assign(this, { whole, files: [], timer: 0 });
    $("attach").onclick = () => $("files").click();
    $("files").onchange = async () => {
      await this.add($("files").files);
      $("files").value = "";
    };
    $("prompt").addEventListener("input", () => this.#countLater());
    $("prompt").addEventListener("paste", (event) => this.#take(event, event.clipboardData));
    for (const name of ["dragenter", "dragover"]) {
      addEventListener(name, (event) =>
        event.dataTransfer?.types.includes("Files") && event.preventDefault());
    }
    addEventListener("drop", (event) => this.#take(event, event.dataTransfer));
  }

  #take(event, { files }) {
    if (!files.length) return;
    event.preventDefault();
    this.add(files);
  }

  /** Add files that are text, or pictures; say of others why not. */
  async add(files) {
    const problems = [];
    for (const file of files) {
      try {
        this.files.push(isPicture(file) ? await pictureOf(file)
          : { name: file.name, text: await textOf(file) });
      } catch (error) {
        problems.push(error.message);
      }
    }
    $("problem").textContent = problems.join(" ");
    this.#show();
    await Promise.all(this.files.filter((each) => each.tokens === undefined).map(count));
    this.#show();
    $("prompt").focus();
  }

  /** Have these files in place of the others. */
  give(files) {
    this.files = [...files];
    this.#show();
  }

  #show() {
    $("attached").replaceChildren(...this.files.map((file) => element("li", {},
      file.url ? thumbnail(file) : "", element("b", {}, file.name), element("span", {}, counted(file.tokens)),
      button("×", () => this.give(this.files.filter((each) => each !== file)),
        { "aria-label": `Remove ${file.name}` }))));
    $("attached-note").textContent = "";
    this.#countLater();
  }

  #countLater() {
    clearTimeout(this.timer);
    if (this.files.length) this.timer = setTimeout(() => this.#countWhole(), COUNT_AFTER_MS);
  }

  /** Say how long the prompt would be, with all that was said before. */
  async #countWhole() {
    const { model, messages } = this.whole();
    const { count: tokens, max_model_len: most } = await tokenized({ model, messages });
    if (!this.files.length || tokens === undefined) return;
    const isLong = tokens >= most;
    $("attached-note").textContent = `${tokens.toLocaleString("en")} of ${most.toLocaleString("en")}`
      + ` tokens with the conversation${isLong ? ": too long" : ""}`;
    $("attached-note").classList.toggle("error", isLong);
  }
}

async function textOf(file) {
  if (file.size > BYTES_MAX) throw new Error(`${file.name} is over 1 MiB.`);
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    if (!text.includes("\0")) return text.replaceAll("\r\n", "\n");
  } catch { /* not UTF-8, or not to be read */ }
  throw new Error(`${file.name} is no text in UTF-8.`);
}

async function count(file) {
  const { name: model } = $("model").dataset;
  if (!file.url) {
    file.tokens = (await tokenized({ model, prompt: file.text, add_special_tokens: false })).count;
    return;
  }
  const ask = (files) => tokenized({ model, messages: [{ role: "user", content: withPictures("?", files) }] });
  const [alone, beside] = [await ask([]), await ask([file])];
  file.tokens = beside.count && beside.count - alone.count;
}

/** Return what the server counts; nothing where it cannot. */
async function tokenized(body) {
  try {
    const reply = await fetch("/tokenize",
      { method: "POST", headers: headers(), body: JSON.stringify(body) });
    return reply.ok ? await reply.json() : {};
  } catch {
    return {};
  }
}

/** Return a file as it stands under a message: folded. */
export function shownFile({ name, text, tokens, url }) {
  if (url) {
    return element("figure", { class: "file" }, thumbnail({ name, url }),
      element("figcaption", {}, element("b", {}, name), " ", element("span", {}, counted(tokens))));
  }
  return element("details", { class: "file" },
    element("summary", {}, element("b", {}, name), " ", element("span", {}, counted(tokens))),
    element("pre", { tabindex: "0", role: "group", "aria-label": name }, text));
}
