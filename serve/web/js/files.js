/** Buttons for files and checksums: download (with the token when there is one) and copy. */

import { address, request } from "./api.js";
import { h } from "./dom.js";
import { bytes } from "./format.js";
import { token } from "./token.js";

/** A link that downloads. A link cannot send a token, so behind one the file is fetched and handed over. */
export function downloadButton(path, { name, size, label = "Download", primary = false }) {
  const state = h("span", { class: "size" }, bytes(size));
  const link = h(
    "a",
    { class: `button${primary ? " primary" : ""}`, href: address(path), download: name },
    label,
    " ",
    state,
  );
  link.addEventListener("click", async (event) => {
    if (!token()) return;
    event.preventDefault();
    if (link.getAttribute("aria-busy")) return;
    link.setAttribute("aria-busy", "true");
    try {
      const response = await request(path);
      hand(await collect(response, (done) => (state.textContent = `${bytes(done)} of ${bytes(size)}`)), name);
      state.textContent = bytes(size);
    } catch (error) {
      state.textContent = error.message;
    } finally {
      link.removeAttribute("aria-busy");
    }
  });
  return link;
}

async function collect(response, onBytes) {
  const parts = [];
  let done = 0;
  for (const reader = response.body.getReader(); ;) {
    const { done: ended, value } = await reader.read();
    if (ended) return new Blob(parts, { type: "application/octet-stream" });
    parts.push(value);
    onBytes((done += value.length));
  }
}

function hand(blob, name) {
  const url = URL.createObjectURL(blob);
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** Copies text, or what a function gives when it is pressed; `what` tells screen readers what it is. */
export function copyButton(text, what) {
  const button = h("button", { type: "button", class: "copy", "aria-label": `Copy ${what}` }, "Copy");
  button.addEventListener("click", async () => {
    const copied = await copy(typeof text === "function" ? text() : text);
    button.textContent = copied ? "Copied" : "Not copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
  return button;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Over plain http from another machine browsers offer only the old way.
    const field = h("textarea", { class: "sr" }, text);
    document.body.append(field);
    field.select();
    const copied = document.execCommand("copy");
    field.remove();
    return copied;
  }
}

export function checksum(sha256) {
  const text = String(sha256);
  return h(
    "p",
    { class: "checksum" },
    h("span", { class: "muted" }, "sha256 "),
    h("code", { title: text }, `${text.slice(0, 12)}…`),
    copyButton(text, "the sha256 checksum"),
  );
}
