/** The list: search, order, a small curve of each, download, fine-tune. */

import { get } from "../api.js";
import { sparkline } from "../charts.js";
import { empty, failure, h, loading, say } from "../dom.js";
import { checksum, downloadButton } from "../files.js";
import { compact, curveOf, isOwn, measured, moment, nameOf, tasksOf } from "../format.js";

const ORDERS = [
  ["-created", "Newest first"],
  ["created", "Oldest first"],
  ["id", "Name"],
  ["method", "Method"],
  ["model", "Model"],
  ["size", "Smallest first"],
  ["-size", "Largest first"],
];
const PAGE = 20;
const SHOWN_TASKS = 8;

export const linkTo = (id) => `#/initializations/${encodeURIComponent(id)}`;

export function showInitializations(root, { query, signal }) {
  const search = h("input", {
    type: "search",
    id: "search",
    placeholder: "Method, model, dataset…",
    value: query.get("q") ?? "",
    autocomplete: "off",
  });
  const order = h(
    "select",
    { id: "order" },
    ORDERS.map(([value, text]) => h("option", { value, selected: query.get("sort") === value }, text)),
  );
  const number = h("p", { class: "muted", role: "status" });
  const holder = h("div");
  let current = new AbortController();
  signal.addEventListener("abort", () => current.abort());

  function load() {
    current.abort();
    current = new AbortController();
    const asked = { q: search.value.trim(), sort: order.value, limit: PAGE };
    say(number, "");
    loading(holder, current.signal, async () => {
      const page = await get("initializations", { query: asked, signal: current.signal });
      if (!page.data.length) return nothing(asked.q);
      return list(page, asked, current.signal, (text) => say(number, text));
    });
  }

  function remember() {
    const kept = new URLSearchParams();
    if (search.value.trim()) kept.set("q", search.value.trim());
    if (order.value !== "-created") kept.set("sort", order.value);
    history.replaceState(null, "", `#/initializations${kept.size ? `?${kept}` : ""}`);
    load();
  }

  let typing;
  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => signal.aborted || remember(), 200);
  });
  order.addEventListener("change", remember);
  root.append(
    h("div", { class: "title" }, h("h1", {}, "Initializations"), number),
    h(
      "p",
      { class: "lead" },
      "Weights to start from, meta-trained on many datasets. Download one, or fine-tune it here.",
    ),
    h(
      "div",
      { class: "filters", role: "search" },
      h("div", {}, h("label", { for: "search" }, "Search"), search),
      h("div", {}, h("label", { for: "order" }, "Order"), order),
    ),
    holder,
  );
  load();
}

function nothing(words) {
  if (words) return empty(`Nothing matches “${words}”.`);
  return empty(
    "No initialization yet.",
    h("p", {}, "Train one into the service's storage and it appears here:"),
    h("pre", { tabindex: "0" }, "python -m rayctsl.train --run-dir STORAGE/first"),
  );
}

function list(page, asked, signal, onCount) {
  const curves = new IntersectionObserver(
    (seen) => {
      for (const { isIntersecting, target } of seen) {
        if (!isIntersecting) continue;
        curves.unobserve(target);
        drawCurve(target, signal);
      }
    },
    { rootMargin: "200px" },
  );
  signal.addEventListener("abort", () => curves.disconnect());
  const rows = h("ul", { class: "cards" });
  const more = h("button", { type: "button", class: "more" }, "Show more");

  function add({ data, has_more }) {
    for (const card of data) {
      const row = cardRow(card);
      rows.append(row);
      curves.observe(row.querySelector(".spark"));
    }
    more.hidden = !has_more;
    onCount(`${rows.children.length}${has_more ? " of more" : ""}`);
  }

  more.addEventListener("click", async () => {
    more.disabled = true;
    try {
      const after = rows.lastElementChild.dataset.id;
      const first = rows.children.length;
      add(await get("initializations", { query: { ...asked, after }, signal }));
      rows.children[first]?.querySelector("a[href]").focus();
    } catch (error) {
      if (!signal.aborted) more.before(failure(error));
    } finally {
      more.disabled = false;
    }
  });
  add(page);
  return [rows, more];
}

function cardRow(card) {
  const about = [
    nameOf(card.method),
    nameOf(card.model),
    card.num_parameters && `${compact(card.num_parameters)} parameters`,
  ];
  const path = `initializations/${encodeURIComponent(card.id)}/weights`;
  return h(
    "li",
    { class: "card entry", "data-id": card.id },
    h("div", { class: "spark", "data-id": card.id }),
    h(
      "div",
      { class: "about" },
      h("h2", {}, h("a", { href: linkTo(card.id) }, card.id)),
      h("p", { class: "line" }, [...about.filter(Boolean).map((text) => h("span", {}, text)), moment(card.created)]),
      chips(tasksOf(card)),
    ),
    h(
      "div",
      { class: "actions" },
      h(
        "div",
        { class: "buttons" },
        downloadButton(path, { name: `${card.id}.safetensors`, size: card.size }),
        !isOwn(card) &&
          h("a", { class: "button", href: `#/finetune?initialization=${encodeURIComponent(card.id)}` }, "Fine-tune"),
      ),
      checksum(card.sha256),
    ),
  );
}

/** Datasets as links that search for them. */
export function chips(tasks, most = SHOWN_TASKS) {
  if (!tasks.length) return null;
  const chip = (task) =>
    h("li", {}, h("a", { class: "chip", href: `#/initializations?${new URLSearchParams({ q: task })}` }, task));
  const rest = tasks.length - most;
  return h(
    "ul",
    { class: "chips", "aria-label": "Meta-trained on" },
    tasks.slice(0, most).map(chip),
    rest > 0 && h("li", { class: "muted" }, `and ${rest} more`),
  );
}

/** The list leaves long curves out, so a row fetches its own once it can be seen. */
async function drawCurve(holder, signal) {
  try {
    const card = await get(`initializations/${encodeURIComponent(holder.dataset.id)}`, { signal, quiet: true });
    const points = curveOf(card);
    const last = points.at(-1)?.[1];
    if (points.length < 2) holder.replaceChildren(h("span", { class: "muted" }, "no curve"));
    else
      holder.replaceChildren(
        sparkline(points, `Meta-training loss, at the end ${measured(last)}`),
        h("span", { class: "muted" }, `loss ${measured(last)}`),
      );
  } catch {
    // The row is complete without it.
  }
}
