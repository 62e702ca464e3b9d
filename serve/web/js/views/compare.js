/** Several jobs' curves in one picture, and their numbers at steps that all of them have reached. */

import { get } from "../api.js";
import { ACCURACY, chart } from "../charts.js";
import { empty, h, loading } from "../dom.js";
import { count, decimal, percent } from "../format.js";

const COLOURS = ["accent", "second", "third", "fourth", "fifth", "sixth"];

export function showComparison(root, { query, signal }) {
  const ids = (query.get("jobs") ?? "").split(",").filter(Boolean).slice(0, COLOURS.length);
  const holder = h("div");
  root.append(
    h("p", { class: "crumb" }, h("a", { href: "#/jobs" }, "Jobs")),
    h("h1", {}, "Compare jobs"),
    h("p", { class: "lead" }, "Accuracy on the test images, step by step."),
    holder,
  );
  if (ids.length < 2) {
    holder.append(empty("Choose two or more jobs in the list of jobs.", h("p", {}, h("a", { href: "#/jobs" }, "Jobs"))));
    return;
  }
  loading(holder, signal, async () => {
    const jobs = await Promise.all(ids.map((id) => get(`finetune/${encodeURIComponent(id)}`, { signal })));
    return [picture(jobs, signal), numbers(jobs), mixed(jobs)].filter(Boolean);
  });
}

const nameOf = (job) => job.label || `${job.dataset} from ${job.initialization.id}`;

function picture(jobs, signal) {
  const runs = jobs.map((job, i) => ({ label: `${nameOf(job)}, seed ${job.seed}`, colour: COLOURS[i] }));
  const drawn = chart({
    title: "Accuracy on the test images",
    runs,
    end: Math.max(...jobs.map((job) => job.progress.steps)),
    ...ACCURACY,
    signal,
  });
  drawn.update(jobs.map((job) => job.metrics.initialization.map((point) => [point.step, point.accuracy])));
  return h("section", { class: "card" }, drawn.node);
}

/** Differences only where every job has a point: another step's accuracy says nothing. */
function numbers(jobs) {
  const points = jobs.map((job) => new Map(job.metrics.initialization.map((point) => [point.step, point.accuracy])));
  const common = [...points[0].keys()].filter((step) => points.every((one) => one.has(step)));
  const at = common.at(-1);
  const best = Math.max(...points.map((one) => one.get(at) ?? 0));
  const row = (job, i) => {
    const value = points[i].get(at);
    const behind = at === undefined ? "" : value === best ? "best" : `${(100 * (value - best)).toFixed(1)} points`;
    return h(
      "tr",
      {},
      h("th", { scope: "row" }, h("a", { href: `#/jobs/${job.id}` }, nameOf(job))),
      [percent(value), behind, job.initialization.id, count(job.seed), decimal(job.config.alpha)].map((text) =>
        h("td", {}, text),
      ),
    );
  };
  const title = at === undefined ? "No step that all of them have reached" : `At step ${count(at)}, which all have reached`;
  const heads = ["Job", "Accuracy", "Difference", "Initialization", "Seed", "Rate"];
  const table = h(
    "table",
    {},
    h("thead", {}, h("tr", {}, heads.map((text) => h("th", { scope: "col" }, text)))),
    h("tbody", {}, jobs.map(row)),
  );
  const box = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, table);
  return h("section", { class: "card" }, h("h2", {}, title), box);
}

function mixed(jobs) {
  const datasets = new Set(jobs.map((job) => job.dataset));
  if (datasets.size < 2) return null;
  return h("p", { class: "notice" }, `These jobs are of different datasets (${[...datasets].join(", ")}).`);
}
