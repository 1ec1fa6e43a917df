// The list of conversations, a drawer where the window is narrow.

import { $, announce, element } from "./dom.js";

/** Shows what the shelf holds; `opened` and `removed` are called with an id. */
export class ChatList {
  constructor(shelf, { opened, removed }) {
    Object.assign(this, { shelf, opened, removed });
    $("chats-toggle").onclick = () => this.fold(document.body.classList.contains("chats-open"));
    addEventListener("keydown", (event) => event.key === "Escape" && this.fold(true));
    document.body.addEventListener("pointerdown", (event) => {
      const outside = !$("chats").contains(event.target) && event.target !== $("chats-toggle");
      if (outside) this.fold(true);
    });
    $("forget").onclick = () => {
      if (!confirm("Delete all conversations from this browser?")) return;
      for (const { id } of this.shelf.list()) this.#remove(id);
    };
    addEventListener("storage", () => this.show(this.current));
  }

  /** Close or open the drawer. */
  fold(closed) {
    const was = document.body.classList.contains("chats-open");
    document.body.classList.toggle("chats-open", !closed);
    $("chats-toggle").setAttribute("aria-expanded", String(!closed));
    if (closed && was) $("chats-toggle").focus();
    if (!closed) ($("chat-list").querySelector("button") ?? $("chats")).focus();
  }

  show(current) {
    this.current = current;
    const kept = this.shelf.list();
    $("no-chats").hidden = kept.length > 0;
    $("forget").hidden = !kept.length;
    $("chat-list").replaceChildren(...kept.map((each) => this.#item(each)));
  }

  #item({ id, title }) {
    const open = element("button", { type: "button", class: "open", title,
      "aria-current": id === this.current ? "page" : undefined,
      onclick: () => {
        this.fold(true);
        this.opened(id);
      } }, title || "Untitled");
    const gone = element("button", { type: "button", class: "delete",
      "aria-label": `Delete “${title}”`, onclick: () => this.#remove(id) }, "×");
    return element("li", {}, open, gone);
  }

  #remove(id) {
    this.shelf.forget(id);
    announce("Deleted");
    this.removed(id);
  }
}
