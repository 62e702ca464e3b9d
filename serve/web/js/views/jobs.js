/** The list of jobs, kept up to date while it is looked at. */

import { get } from "../api.js";
import { empty, failure, h, loading, say } from "../dom.js";
import { moment, percent } from "../format.js";
import { pause } from "../stream.js";
import { cancelControl, hasEnded, progressBar, statusPill } from "./status.js";

const STATUSES = ["queued", "starting", "running", "cancelling", "succeeded", "failed", "cancelled"];
const PAGE = 20;

export function showJobs(root, { query, signal }) {
  const wanted = STATUSES.includes(query.get("status")) ? query.get("status") : "";
  const filter = h(
    "select",
    { id: "status" },
    h("option", { value: "" }, "All"),
    STATUSES.map((status) => h("option", { value: status, selected: status === wanted }, status)),
  );
  filter.addEventListener("change", () => (location.hash = filter.value ? `#/jobs?status=${filter.value}` : "#/jobs"));
  const holder = h("div");
  root.append(
    h("h1", {}, "Jobs"),
    h("p", { class: "lead" }, "Fine-tuning, newest first. Jobs go on when you leave this page."),
    h("div", { class: "filters" }, h("div", {}, h("label", { for: "status" }, "Status"), filter)),
    holder,
  );
  loading(holder, signal, async () =>
    list(await get("finetune", { query: { limit: PAGE, status: wanted }, signal }), wanted, signal),
  );
}

function list(first, status, signal) {
  const rows = new Map();
  const node = h("ul", { class: "cards" });
  const more = h("button", { type: "button", class: "more" }, "Show more");
  const nothing = empty(
    status ? `No job is ${status}.` : "No jobs yet.",
    h("p", {}, h("a", { href: "#/finetune" }, "Start a fine-tune")),
  );

  /** New jobs go to their place by age, known ones change in place: the keyboard's focus stays where it is. */
  function merge(jobs) {
    for (const job of jobs) {
      if (rows.has(job.id)) rows.get(job.id).update(job);
      else {
        const row = jobRow(job);
        const older = [...rows.values()].filter((other) => other.job().created_at < job.created_at);
        rows.set(job.id, row);
        node.insertBefore(
          row.node,
          [...node.children].find((item) => older.some((other) => other.node === item)) ?? null,
        );
      }
    }
    nothing.hidden = rows.size > 0;
  }

  /** With a status asked for, jobs of the first page that have it no longer leave the list. */
  function dropOthers(page) {
    const oldest = page.has_more ? page.data.at(-1).created_at : 0;
    for (const [id, row] of rows) {
      const listed = page.data.some((job) => job.id === id) || row.job().created_at < oldest;
      if (listed || row.node.contains(document.activeElement)) continue;
      row.node.remove();
      rows.delete(id);
    }
    nothing.hidden = rows.size > 0;
  }

  more.addEventListener("click", async () => {
    more.disabled = true;
    try {
      const page = await get("finetune", {
        query: { limit: PAGE, status, after: node.lastElementChild.dataset.id },
        signal,
      });
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
        const page = await get("finetune", { query: { limit: PAGE, status }, signal, quiet: true });
        merge(page.data);
        if (status) dropOthers(page);
      } catch {
        // The header says when the service is away; the list stays as it was.
      }
    }
  }

  merge(first.data);
  more.hidden = !first.has_more;
  keepUp();
  return [nothing, node, more];
}

function jobRow(first) {
  let current = first;
  const pill = statusPill();
  const bar = progressBar(`Progress of job ${first.id}`);
  const outcome = h("p", { class: "outcome" });
  const cancel = cancelControl(first.id, update);
  const node = h(
    "li",
    { class: "card entry job", "data-id": first.id },
    pill.node,
    h(
      "div",
      { class: "about" },
      h("h2", {}, h("a", { href: `#/jobs/${first.id}` }, first.label || first.dataset)),
      h(
        "p",
        { class: "line" },
        first.label && h("span", {}, first.dataset),
        h("span", {}, `from ${first.initialization.id}`),
        moment(first.created_at),
      ),
    ),
    h("div", { class: "actions" }, outcome, bar.node, cancel.node),
  );

  function update(job) {
    current = job;
    for (const part of [pill, bar, cancel]) part.update(job);
    bar.node.hidden = hasEnded(job);
    say(outcome, job.result ? result(job.result) : (job.error?.message ?? ""));
  }

  update(first);
  return { node, update, job: () => current };
}

function result({ accuracy, scratch_accuracy: scratch }) {
  const compared = scratch === null ? "" : `, ${percent(scratch)} from scratch`;
  return `${percent(accuracy)} correct${compared}`;
}
