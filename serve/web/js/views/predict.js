/** Try a finished model: drop, choose or paste an image and see its classes. */

import { post } from "../api.js";
import { failure, h, say } from "../dom.js";
import { percent } from "../format.js";

const TYPES = ["image/png", "image/jpeg", "image/webp", "image/gif", "image/bmp"];
const SHOWN = 5;

export function predictor(jobId, signal) {
  const input = h("input", { type: "file", id: "image", accept: TYPES.join(","), class: "sr" });
  const preview = h("img", { alt: "", hidden: true });
  const text = h("span", {}, h("strong", {}, "Drop an image"), " or choose one");
  const zone = h("label", { class: "drop", for: "image" }, preview, text);
  const answer = h("div", { class: "answer", "aria-live": "polite" });
  const node = h(
    "section",
    { class: "card" },
    h("h2", {}, "Try it"),
    h("div", { class: "predict" }, h("div", {}, input, zone), answer),
  );
  let asked = new AbortController();
  let url = null;

  async function classify(file) {
    asked.abort();
    asked = new AbortController();
    const { signal: latest } = asked;
    if (url) URL.revokeObjectURL(url);
    url = URL.createObjectURL(file);
    preview.src = url;
    preview.hidden = false;
    text.replaceChildren(file.name || "Pasted image");
    answer.setAttribute("aria-busy", "true");
    try {
      const headers = { "content-type": TYPES.includes(file.type) ? file.type : "application/octet-stream" };
      const { classes } = await post(`finetune/${jobId}/predict`, { body: file, headers, signal: latest });
      if (!latest.aborted) answer.replaceChildren(...bars(classes));
    } catch (error) {
      if (!latest.aborted) answer.replaceChildren(failure(error));
    } finally {
      answer.removeAttribute("aria-busy");
    }
  }

  preview.addEventListener("error", () => (preview.hidden = true));
  input.addEventListener("change", () => input.files[0] && classify(input.files[0]));
  const over = (on) => (event) => {
    event.preventDefault();
    zone.classList.toggle("over", on);
  };
  zone.addEventListener("dragover", over(true));
  zone.addEventListener("dragleave", over(false));
  zone.addEventListener("drop", (event) => {
    over(false)(event);
    if (event.dataTransfer.files[0]) classify(event.dataTransfer.files[0]);
  });
  // A near miss must not make the browser leave the page for the image.
  for (const name of ["dragover", "drop"]) window.addEventListener(name, (event) => event.preventDefault(), { signal });
  window.addEventListener("paste", (event) => event.clipboardData.files[0] && classify(event.clipboardData.files[0]), {
    signal,
  });
  signal.addEventListener("abort", () => {
    asked.abort();
    if (url) URL.revokeObjectURL(url);
  });
  return node;
}

function bars(classes) {
  const row = ({ name, probability }) => {
    const bar = h("span", { class: "bar", "aria-hidden": "true" });
    bar.style.width = `${100 * probability}%`;
    return h(
      "li",
      {},
      h("span", { class: "name" }, name),
      h("span", { class: "value" }, percent(probability)),
      h("span", { class: "track" }, bar),
    );
  };
  const list = h("ol", { class: "bars", "aria-label": "Classes, likeliest first" }, classes.slice(0, SHOWN).map(row));
  const rest = classes.slice(SHOWN);
  if (!rest.length) return [list];
  const more = h("button", { type: "button", class: "small" });
  say(more, `Show all ${classes.length} classes`);
  more.addEventListener("click", () => {
    list.append(...rest.map(row));
    more.remove();
  });
  return [list, more];
}
