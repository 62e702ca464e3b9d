/** The jobs as a table, kept up to date while it is looked at: search, filter, sort, and choose some to compare. */

import { get, request } from "../api.js";
import { empty, failure, h, loading, say } from "../dom.js";
import { count, decimal, moment, percent } from "../format.js";
import { pause } from "../stream.js";
import { twice } from "./keeping.js";
import { cancelControl, hasEnded, progressBar, statusPill } from "./status.js";

const STATUSES = ["queued", "starting", "running", "cancelling", "succeeded", "failed", "cancelled"];
const PAGE = 50;
const MOST_COMPARED = 6;

/** What the table can be sorted by: name, label, value of a job. */
const COLUMNS = [
  ["job", "Job", (job) => (job.label || job.dataset).toLowerCase()],
  ["status", "Status", (job) => STATUSES.indexOf(job.status)],
  ["accuracy", "Accuracy", (job) => job.result?.accuracy ?? -1],
  ["steps", "Steps", (job) => job.progress.steps],
  ["alpha", "Rate", (job) => job.config.alpha],
  ["seed", "Seed", (job) => job.seed],
  ["created", "Created", (job) => job.created_at],
];

const NUMBERS = ["accuracy", "steps", "alpha", "seed"];

export function showJobs(root, { query, signal }) {
  const wanted = STATUSES.includes(query.get("status")) ? query.get("status") : "";
  const filter = h(
    "select",
    { id: "status" },
    h("option", { value: "" }, "All"),
    STATUSES.map((status) => h("option", { value: status, selected: status === wanted }, status)),
  );
  filter.addEventListener("change", () => (location.hash = filter.value ? `#/jobs?status=${filter.value}` : "#/jobs"));
  const search = h("input", { type: "search", id: "job-search", placeholder: "Label, dataset, initialization…" });
  const holder = h("div");
  root.append(
    h("h1", {}, "Jobs"),
    h("p", { class: "lead" }, "Fine-tuning, newest first. Jobs go on when you leave this page. ",
      h("a", { href: "#/comparisons" }, "Compare initializations on one dataset")),
    h(
      "div",
      { class: "filters", role: "search" },
      h("div", {}, h("label", { for: "job-search" }, "Search"), search),
      h("div", {}, h("label", { for: "status" }, "Status"), filter),
    ),
    holder,
  );
  loading(holder, signal, async () => {
    const first = await get("finetune", { query: { limit: PAGE, status: wanted }, signal });
    return table(first, wanted, search, signal);
  });
}

function table(first, status, search, signal) {
  const rows = new Map();
  let deletions = 0; // a list that was asked for before the last of them may still have its job
  const body = h("tbody");
  const order = { name: "created", down: true };
  const more = h("button", { type: "button", class: "more" }, "Show more");
  const compare = compareBar(() => [...rows.values()].filter((row) => row.chosen()).map((row) => row.job()), forget);
  const heads = COLUMNS.map(([name, text]) => sortHead(name, text, order, arrange));
  const nothing = empty(
    status ? `No job is ${status}.` : "No jobs yet.",
    h("p", {}, h("a", { href: "#/finetune" }, "Start a fine-tune")),
  );
  const unmatched = h("p", { class: "muted", role: "status", hidden: true }, "No job matches the search.");
  const box = h(
    "div",
    { class: "card scroll jobs", tabindex: "0", role: "region", "aria-label": "Jobs" },
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, h("span", { class: "sr" }, "Compare")), heads)),
      body,
    ),
  );

  /** Rows in their order; one that holds the keyboard's focus stays in the document while others move around it. */
  function arrange() {
    const [, , value] = COLUMNS.find(([name]) => name === order.name);
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const sorted = [...rows.values()].sort((a, b) => {
      const [x, y] = [value(a.job()), value(b.job())];
      return (x < y ? -1 : x > y ? 1 : 0) * (order.down ? -1 : 1);
    });
    sorted.forEach((row, place) => {
      if (body.children[place] !== row.node) body.insertBefore(row.node, body.children[place] ?? null);
      row.node.hidden = !words.every((word) => row.text().includes(word));
    });
    nothing.hidden = rows.size > 0;
    box.hidden = rows.size === 0;
    unmatched.hidden = rows.size === 0 || sorted.some((row) => !row.node.hidden);
    for (const head of heads) head.mark();
  }

  function forget(id) {
    deletions += 1;
    rows.get(id)?.node.remove();
    rows.delete(id);
    arrange();
  }

  function merge(jobs) {
    for (const job of jobs) {
      if (rows.has(job.id)) rows.get(job.id).update(job);
      else rows.set(job.id, jobRow(job, compare.update));
    }
    arrange();
  }

  /** Jobs that the first page should have and has not leave the list: deleted elsewhere, or of another status now. */
  function dropOthers(page) {
    const oldest = page.has_more ? page.data.at(-1).created_at : 0;
    for (const [id, row] of rows) {
      const listed = page.data.some((job) => job.id === id) || row.job().created_at <= oldest;
      if (listed || row.node.contains(document.activeElement)) continue;
      row.node.remove();
      rows.delete(id);
    }
    arrange();
  }

  more.addEventListener("click", async () => {
    more.disabled = true;
    try {
      const oldest = [...rows.values()].map((row) => row.job()).sort((a, b) => a.created_at - b.created_at)[0];
      const page = await get("finetune", { query: { limit: PAGE, status, after: oldest.id }, signal });
      merge(page.data);
      more.hidden = !page.has_more;
    } catch (error) {
      if (!signal.aborted) more.before(failure(error));
    } finally {
      more.disabled = false;
    }
  });

  async function keepUp() {
    while (!signal.aborted) {
      const busy = [...rows.values()].some((row) => !hasEnded(row.job()));
      await pause(busy ? 1500 : 5000, signal);
      if (signal.aborted || document.hidden) continue;
      try {
        const before = deletions;
        const page = await get("finetune", { query: { limit: PAGE, status }, signal, quiet: true });
        if (deletions !== before) continue;
        merge(page.data);
        dropOthers(page);
      } catch {
        // The header says when the service is away; the list stays as it was.
      }
    }
  }

  search.addEventListener("input", arrange, { signal });
  merge(first.data);
  more.hidden = !first.has_more;
  keepUp();
  return [nothing, unmatched, compare.node, box, more];
}

function sortHead(name, text, order, arrange) {
  const button = h("button", { type: "button", class: "sort" }, text);
  const node = h("th", { scope: "col", class: NUMBERS.includes(name) && "right" }, button);
  button.addEventListener("click", () => {
    order.down = order.name === name ? !order.down : true;
    order.name = name;
    arrange();
  });
  node.mark = () => {
    if (order.name === name) node.setAttribute("aria-sort", order.down ? "descending" : "ascending");
    else node.removeAttribute("aria-sort");
  };
  return node;
}

/** Says how many are chosen, leads to their curves, and deletes them. */
function compareBar(chosen, onDeleted) {
  const text = h("span", { role: "status" });
  const link = h("a", { class: "button" }, "Compare their curves");
  const remove = twice("Delete them", "Yes, delete them", async () => {
    try {
      for (const { id } of chosen()) {
        await request(`finetune/${id}`, { method: "DELETE" });
        onDeleted(id);
      }
      update();
    } catch (error) {
      say(text, error.message);
    }
  });
  const node = h("p", { class: "compare-bar", hidden: true }, text, link, remove);
  function update() {
    const jobs = chosen();
    node.hidden = jobs.length === 0;
    say(text, jobs.length === 1 ? "1 job chosen; choose another" : `${jobs.length} jobs chosen`);
    remove.hidden = !jobs.every(hasEnded);
    link.hidden = jobs.length < 2 || jobs.length > MOST_COMPARED;
    if (jobs.length > MOST_COMPARED) say(text, `${jobs.length} jobs chosen; ${MOST_COMPARED} can be compared`);
    link.href = `#/compare?jobs=${jobs.map((job) => job.id).join(",")}`;
  }
  return { node, update };
}

function jobRow(first, onChoice) {
  let current = first;
  const name = first.label || first.dataset;
  const box = h("input", { type: "checkbox", "aria-label": `Compare ${name} (${first.id})` });
  const pill = statusPill();
  const bar = progressBar(`Progress of job ${first.id}`);
  const outcome = h("span", { class: "outcome" });
  const scratch = h("span", { class: "line" });
  const reason = h("span", { class: "reason" });
  const cancel = cancelControl(first.id, update);
  box.addEventListener("change", onChoice);
  const node = h(
    "tr",
    { class: "job", "data-id": first.id },
    h("td", {}, box),
    h(
      "th",
      { scope: "row" },
      h("a", { href: `#/jobs/${first.id}` }, name),
      h("span", { class: "line" }, first.label && h("span", {}, first.dataset), h("span", {}, first.initialization.id)),
      reason,
    ),
    h("td", {}, pill.node, bar.node, cancel.node),
    h("td", { class: "right" }, outcome, scratch),
    h("td", { class: "right" }, count(first.progress.steps)),
    h("td", { class: "right" }, decimal(first.config.alpha)),
    h("td", { class: "right" }, count(first.seed)),
    h("td", {}, moment(first.created_at)),
  );

  function update(job) {
    current = job;
    for (const part of [pill, bar, cancel]) part.update(job);
    bar.node.hidden = hasEnded(job);
    say(outcome, percent(job.result?.accuracy));
    say(scratch, Number.isFinite(job.result?.scratch_accuracy) ? `${percent(job.result.scratch_accuracy)} from scratch` : "");
    say(reason, job.error?.message ?? "");
  }

  update(first);
  const text = () =>
    [current.id, current.label, current.dataset, current.initialization.id, current.status].join(" ").toLowerCase();
  return { node, update, job: () => current, chosen: () => box.checked, text };
}
