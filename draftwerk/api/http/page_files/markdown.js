// Markdown to elements. No text is ever parsed as HTML, and nothing is loaded from elsewhere.
//
// Each character shown stands somewhere in the source, so that what is laid out can be coloured
// by the tokens it came from: `paint(parent, start, end)` appends that part of the source.

import { button, copy, element } from "./dom.js";

const DEPTH_MAX = 8;  // of quotes and lists within each other, and of emphasis
const LINK_MAX = 2048;  // characters of a link, with what it is called
const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`\s]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})(?:\s+|$)/;
const RULE = /^ {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|(\d{1,9})[.)])( {1,4}|$)/;
const TABLE_RULE = /^ {0,3}\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;
const SAFE_URL = /^(?:https?:\/\/|mailto:)/i;
const BARE_URL = /^https?:\/\/[^\s<>"'`]+/i;
const ESCAPABLE = /[!-/:-@[-`{-~]/;

/** Yield the outermost blocks of a text, each as [start, end, kind, lines]. */
export function blocks(text) {
  const lines = [];
  for (let start = 0; start <= text.length;) {
    const found = text.indexOf("\n", start);
    const end = found < 0 ? text.length : found;
    lines.push([start, end]);
    start = end + 1;
  }
  return [...split(text, lines, 0)];
}

function* split(text, lines, depth) {
  const said = (at) => text.slice(...lines[at]);
  const isBlank = (at) => !said(at).trim();
  for (let at = 0; at < lines.length;) {
    if (isBlank(at)) {
      at += 1;
      continue;
    }
    const line = said(at);
    let kind = "paragraph", end = at + 1;
    if (FENCE.test(line)) {
      kind = "code";
      end = fenceEnd(text, lines, at);
    } else if (HEADING.test(line)) kind = "heading";
    else if (RULE.test(line)) kind = "rule";
    else if (QUOTE.test(line) && depth < DEPTH_MAX) {
      kind = "quote";
      while (end < lines.length && QUOTE.test(said(end))) end += 1;
    } else if (ITEM.test(line) && depth < DEPTH_MAX) {
      kind = "list";
      end = listEnd(text, lines, at);
    } else if (isTable(text, lines, at)) {
      kind = "table";
      end = at + 2;
      while (end < lines.length && said(end).includes("|")) end += 1;
    } else while (end < lines.length && !isBlank(end) && !begins(text, lines, end)) end += 1;
    yield { kind, lines: lines.slice(at, end), start: lines[at][0], end: lines[end - 1][1] };
    at = end;
  }
}

/** Whether a line ends the paragraph before it. */
function begins(text, lines, at) {
  const line = text.slice(...lines[at]);
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line)
    || ITEM.test(line);
}

function isTable(text, lines, at) {
  return at + 1 < lines.length && text.slice(...lines[at]).includes("|")
    && TABLE_RULE.test(text.slice(...lines[at + 1])) && text.slice(...lines[at + 1]).includes("-");
}

function fenceEnd(text, lines, at) {
  const mark = FENCE.exec(text.slice(...lines[at]))[1];
  for (let end = at + 1; end < lines.length; end += 1) {
    const line = text.slice(...lines[end]).trim();
    if (line.startsWith(mark) && line === mark[0].repeat(line.length)) return end + 1;
  }
  return lines.length;
}

function listEnd(text, lines, at) {
  const kind = (match) => (match[3] === undefined ? match[2] : "1");
  const said = (line) => (line < lines.length ? text.slice(...lines[line]) : "");
  const first = ITEM.exec(said(at));
  const isSibling = (line) => {
    const item = RULE.test(line) ? null : ITEM.exec(line);
    return item !== null && kind(item) === kind(first);
  };
  let end = at + 1, indent = first[0].length;
  for (; end < lines.length; end += 1) {
    const line = said(end);
    if (!line.trim()) {
      const next = said(end + 1);
      if (!next.trim() || (indentOf(next) < indent && !isSibling(next))) break;
    } else if (indentOf(line) < indent) {
      if (isSibling(line)) indent = ITEM.exec(line)[0].length;
      else if (begins(text, lines, end)) break;
    }
  }
  return end;
}

const indentOf = (line) => line.length - line.trimStart().length;

/** Return a block as an element. */
export function drawn(text, block, paint, depth = 0) {
  const { lines } = block;
  const within = (inner) => [...split(text, inner, depth + 1)]
    .map((each) => drawn(text, each, paint, depth + 1));
  switch (block.kind) {
    case "code":
      return codeBlock(text, lines, paint);
    case "heading": {
      const [mark, hashes] = HEADING.exec(text.slice(...lines[0]));
      const closed = text.slice(...lines[0]).replace(/\s+#+\s*$/, "").trimEnd().length;
      const range = [lines[0][0] + mark.length, lines[0][0] + Math.max(closed, mark.length)];
      const box = element("h3", { class: `level${hashes.length}` });  // so that none is left out
      return spoken(box, text, [range], paint);
    }
    case "rule":
      return element("hr");
    case "quote":
      return element("blockquote", {}, ...within(lines.map(([start, end]) =>
        [start + QUOTE.exec(text.slice(start, end))[0].length, end])));
    case "list":
      return list(text, lines, within, paint);
    case "table":
      return table(text, lines, paint);
    default:
      return spoken(element("p"), text, lines.map(([start, end]) =>
        [start + indentOf(text.slice(start, end)), end]), paint);
  }
}

function codeBlock(text, lines, paint) {
  const [, mark, language] = FENCE.exec(text.slice(...lines[0]));
  const last = text.slice(...lines.at(-1)).trim();
  const closed = lines.length > 1 && last.startsWith(mark) && last === mark[0].repeat(last.length);
  const inner = lines.slice(1, closed ? -1 : undefined);
  const code = element("code");
  inner.forEach(([start, end], number) =>
    paint(code, start, number < inner.length - 1 ? end + 1 : end));
  const copied = button("Copy", () => copy(copied, code.textContent),
    { "aria-label": "Copy the code" });
  const label = language || "text";
  return element("div", { class: "code" },
    element("div", {}, element("span", {}, label), copied),
    element("pre", { tabindex: "0", role: "group", "aria-label": `Code: ${label}` }, code));
}

function list(text, lines, within, paint) {
  const items = [];
  let indent = 0, spaced = false;
  for (const [start, end] of lines) {
    const line = text.slice(start, end);
    const item = ITEM.exec(line);
    if (item && (!items.length || indentOf(line) < indent)) {
      indent = item[0].length;
      items.push([[start + indent, end]]);
    } else {
      spaced ||= !line.trim();
      items.at(-1).push([start + Math.min(indent, indentOf(line)), end]);
    }
  }
  const [, , , number] = ITEM.exec(text.slice(...lines[0]));
  const made = number === undefined ? element("ul")
    : element("ol", { start: number === "1" ? undefined : String(Number(number)) });
  for (const inner of items) {
    const children = within(inner);
    const bare = !spaced && children[0]?.tagName === "P";
    made.append(element("li", {}, ...(bare ? children[0].childNodes : children.slice(0, 1)),
      ...children.slice(1)));
  }
  return made;
}

function table(text, lines, paint) {
  const row = (line, tag) => element("tr", {}, ...cells(text, line)
    .map((range) => spoken(element(tag), text, [range], paint)));
  return element("div", { class: "table" }, element("table", {},
    element("thead", {}, row(lines[0], "th")),
    element("tbody", {}, ...lines.slice(2).map((line) => row(line, "td")))));
}

function cells(text, [start, end]) {
  const bars = [];
  for (let at = start; at < end; at += 1) {
    if (text[at] === "\\") at += 1;
    else if (text[at] === "|") bars.push(at);
  }
  const edges = [start - 1, ...bars, end];
  const ranges = edges.slice(1).map((edge, number) => [edges[number] + 1, edge])
    .map(([from, to]) => {
      const inner = text.slice(from, to);
      return [from + indentOf(inner), Math.max(from + indentOf(inner), from + inner.trimEnd().length)];
    });
  if (ranges[0][0] >= ranges[0][1]) ranges.shift();
  if (ranges.length && ranges.at(-1)[0] >= ranges.at(-1)[1]) ranges.pop();
  return ranges;
}

// --- words within a block --------------------------------------------------------------------

/** Append parts of the source to `parent`, with emphasis, code and links laid out. */
function spoken(parent, text, ranges, paint) {
  let said = "";
  const origin = [];  // of each character of `said`
  ranges.forEach(([start, end], number) => {
    for (let at = start; at < end; at += 1) origin.push(at);
    said += text.slice(start, end);
    if (number < ranges.length - 1) {
      origin.push(end);
      said += text[end];
    }
  });
  new Inline(said, (into, from, to) => {
    for (let at = from; at < to;) {
      let next = at + 1;
      while (next < to && origin[next] === origin[next - 1] + 1) next += 1;
      paint(into, origin[at], origin[next - 1] + 1);
      at = next;
    }
  }).write(parent, 0, said.length, 0);
  return parent;
}

const EMPHASIS = [["**", "strong"], ["__", "strong"], ["~~", "del"], ["*", "em"], ["_", "em"]];

class Inline {
  constructor(said, paint) {
    this.said = said;
    this.paint = paint;
    this.unclosed = new Map();  // marks, and from where on none closes: no text is searched twice
  }

  write(parent, from, to, depth) {
    let plain = from, at = from;
    while (at < to) {
      const found = this.#special(at, to, depth);
      if (!found) {
        at += 1;
        continue;
      }
      if (plain < at) this.paint(parent, plain, at);
      found.write(parent);
      at = plain = found.end;
    }
    if (plain < to) this.paint(parent, plain, to);
  }

  /** Return what begins at a character that means something, null for plain text. */
  #special(at, to, depth) {
    const { said } = this;
    switch (said[at]) {
      case "\\":
        if (at + 1 >= to || !ESCAPABLE.test(said[at + 1])) return null;
        return { end: at + 2, write: (parent) => this.paint(parent, at + 1, at + 2) };
      case "`":
        return this.#code(at, to);
      case "!":
        return said[at + 1] === "[" ? this.#link(at + 1, to, depth) : null;
      case "[":
        return this.#link(at, to, depth);
      case "h": case "H":
        return /\w/.test(said[at - 1] ?? " ") ? null : this.#bareLink(at, to);
      case "*": case "_": case "~":
        return depth < DEPTH_MAX ? this.#emphasis(at, to, depth) : null;
      default:
        return null;
    }
  }

  #code(at, to) {
    const mark = /^`+/.exec(this.said.slice(at, to))[0];
    const literal = { end: at + mark.length,
      write: (parent) => this.paint(parent, at, at + mark.length) };
    if (at >= (this.unclosed.get(`${mark}${to}`) ?? Infinity)) return literal;
    const closing = new RegExp(`(?<!\`)${mark}(?!\`)`, "g");
    closing.lastIndex = at + mark.length;
    const found = closing.exec(this.said);
    if (!found || found.index >= to) {
      this.unclosed.set(`${mark}${to}`, at);
      return literal;
    }
    return { end: found.index + mark.length, write: (parent) => {
      const code = element("code");
      this.paint(code, at + mark.length, found.index);
      parent.append(code);
    } };
  }

  #emphasis(at, to, depth) {
    const { said } = this;
    for (const [mark, tag] of EMPHASIS) {
      if (!said.startsWith(mark, at)) continue;
      const inner = at + mark.length;
      if (inner >= to || /\s/.test(said[inner]) || said[inner] === mark[0]) continue;
      if (mark[0] === "_" && /\w/.test(said[at - 1] ?? " ")) continue;
      const close = this.#closing(mark, inner, to);
      if (close < 0) continue;
      return { end: close + mark.length, write: (parent) => {
        const made = element(tag);
        this.write(made, inner, close, depth + 1);
        parent.append(made);
      } };
    }
    const run = /^([*_~])\1*/.exec(said.slice(at, to))[0].length;
    return { end: at + run, write: (parent) => this.paint(parent, at, at + run) };
  }

  #closing(mark, from, to) {
    const { said } = this;
    const key = `${mark}${to}`;
    if (from >= (this.unclosed.get(key) ?? Infinity)) return -1;
    for (let at = said.indexOf(mark, from + 1); at >= 0 && at + mark.length <= to;
      at = said.indexOf(mark, at + 1)) {
      const before = said[at - 1], after = said[at + mark.length] ?? " ";
      if (/[\s\\]/.test(before)) continue;
      if (mark.length === 1 && (before === mark || after === mark)) continue;
      if (mark[0] === "_" && /\w/.test(after)) continue;
      return at;
    }
    this.unclosed.set(key, from);
    return -1;
  }

  #link(at, to, depth) {
    const { said } = this;
    const near = said.slice(at, Math.min(to, at + LINK_MAX));
    const close = at + near.indexOf("](");
    const end = at + near.indexOf(")", close - at);
    if (close < at || end < close || said.lastIndexOf("[", close) !== at) return null;
    const url = said.slice(close + 2, end).trim().split(/\s/)[0];
    if (!isSafe(url)) return null;
    return { end: end + 1, write: (parent) => {
      const link = anchor(url);
      this.write(link, at + 1, close, depth + 1);
      parent.append(link);
    } };
  }

  #bareLink(at, to) {
    const found = BARE_URL.exec(this.said.slice(at, Math.min(to, at + LINK_MAX)));
    if (!found) return null;
    const url = found[0].replace(/[.,;:!?)\]*_~]+$/, "");
    if (!isSafe(url)) return null;
    return { end: at + url.length, write: (parent) => {
      const link = anchor(url);
      this.paint(link, at, at + url.length);
      parent.append(link);
    } };
  }
}

/** Whether a link leads somewhere that runs no script here. */
function isSafe(url) {
  return SAFE_URL.test(url) && URL.canParse(url);
}

const anchor = (url) =>
  element("a", { href: url, target: "_blank", rel: "noopener noreferrer nofollow" });
