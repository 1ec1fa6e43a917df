// A text on the page: laid out or plain, its tokens coloured; what stands is not drawn again.

import { $, element } from "./dom.js";
import { MEANINGS } from "./figures.js";
import { blocks, drawn } from "./markdown.js";

/** Draws a growing text into one element. */
export class Words {
  constructor(label) {
    this.box = element("div", { class: "words", "aria-label": label });
    this.drawn = new Map();  // elements of blocks, by where they start and what they say
  }

  draw({ text, tokens }) {
    const paint = painter(text, tokens);
    if (!$("markdown").checked) {
      this.box.classList.add("plain");
      this.drawn.clear();
      this.#drawPlain(text, tokens, paint);
      return;
    }
    this.box.classList.remove("plain");
    this.plain = undefined;
    const found = new Map();
    for (const block of blocks(text)) {
      const key = `${block.start}:${block.kind}:${text.slice(block.start, block.end)}`;
      found.set(key, this.drawn.get(key) ?? drawn(text, block, paint));
    }
    this.drawn = found;
    replaceChanged(this.box, [...found.values()]);
  }

  // A plain text only grows.
  #drawPlain(text, tokens, paint) {
    if (this.plain === undefined || !text.startsWith(this.plain)) {
      this.box.replaceChildren();
      this.plain = "";
    }
    paint(this.box, this.plain.length, text.length);
    this.plain = text;
  }
}

/** Make `children` the children of an element, without touching those that stay. */
function replaceChanged(parent, children) {
  let same = 0;
  while (same < children.length && parent.childNodes[same] === children[same]) same += 1;
  while (parent.childNodes.length > same) parent.lastChild.remove();
  parent.append(...children.slice(same));
}

/** Return what appends a part of a text to an element, a span for each token in it. */
function painter(text, tokens) {
  return (parent, start, end) => {
    let from = start;
    for (let at = firstAfter(tokens, start); at < tokens.length && from < end; at += 1) {
      const token = tokens[at];
      const to = Math.min(token.end, end);
      parent.append(element("span", { class: "token", "data-origin": token.origin,
        title: explained(token) }, text.slice(from, to)));
      from = to;
    }
    if (from < end) parent.append(text.slice(from, end));
  };
}

/** Return what a token's pointer shows: its origin in words, and how likely it was. */
function explained({ origin, title }) {
  return origin && [title ?? origin, MEANINGS[origin]].filter(Boolean).join("\n");
}

/** Return the number of the first token that ends after a place. */
function firstAfter(tokens, place) {
  let low = 0, high = tokens.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (tokens[middle].end > place) high = middle;
    else low = middle + 1;
  }
  return low;
}
