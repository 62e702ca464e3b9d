/** One dataset, many initializations: ask for a comparison, and watch its leaderboard and curves grow. */

import { get, post, request } from "../api.js";
import { ACCURACY, chart } from "../charts.js";
import { empty, failure, h, loading, say } from "../dom.js";
import { count, isOwn, moment, percent } from "../format.js";
import { pause } from "../stream.js";
import { twice } from "./keeping.js";

const COLOURS = ["accent", "second", "third", "fourth", "fifth", "sixth"];
const SCRATCH = "from scratch";
const LOOK_MS = 2000;

export function showComparisons(root, { id, query, signal }) {
  if (id) return showComparison(root, id, signal);
  const asked = h("div");
  const list = h("div");
  root.append(
    h("h1", {}, "Comparisons"),
    h("p", { class: "lead" }, "Several initializations on one dataset: the same seeds, the same batches, and who is ahead."),
    asked,
    h("h2", {}, "Yours"),
    list,
  );
  loading(asked, signal, async () => {
    const [datasets, cards] = await Promise.all([
      get("datasets", { signal }),
      get("initializations", { query: { limit: 100 }, signal }),
    ]);
    return newComparison(datasets.data, cards.data.filter((card) => !isOwn(card)), query, signal);
  });
  loading(list, signal, async () => {
    const found = await get("comparisons", { query: { limit: 100 }, signal });
    if (!found.length) return h("p", { class: "muted" }, "No comparisons yet.");
    return h("ul", { class: "plain" }, found.map(line));
  });
}

function line(one) {
  const best = one.leaderboard[0];
  const ahead = best?.accuracy === null ? "" : `, ${best.initialization} ahead with ${percent(best.accuracy)}`;
  return h("li", {}, h("a", { href: `#/comparisons/${one.id}` }, one.dataset), ` · ${one.status}${ahead} · `, moment(one.created_at));
}

function newComparison(datasets, cards, query, signal) {
  if (cards.length < 2) {
    return empty("A comparison needs two initializations.", h("p", {}, h("a", { href: "#/initializations" }, "Initializations")));
  }
  const ready = datasets.filter((one) => one.prepared);
  const dataset = h("select", { id: "dataset", required: true }, h("option", { value: "" }, "Choose…"),
    ready.map((one) => h("option", { value: one.name, selected: one.name === query.get("dataset") }, one.name)));
  const boxes = cards.map((card, place) =>
    h("label", { class: "pick" }, h("input", { type: "checkbox", value: card.id, checked: place < 3 }), " ", card.id));
  const seeds = h("input", { id: "seeds", type: "number", min: "1", max: "20", value: "3", required: true });
  const steps = h("input", { id: "steps", type: "number", min: "1", max: "100000", value: "200", required: true });
  const scratch = h("input", { id: "scratch", type: "checkbox", checked: true });
  const send = h("button", { class: "primary", type: "submit" }, "Compare");
  const trouble = h("div");
  const field = (name, label, input) => h("div", { class: "field" }, h("label", { for: name }, label), input);
  const node = h("form", { class: "card form" },
    h("div", { class: "field wide" }, h("label", { for: "dataset" }, "Dataset"), dataset),
    h("fieldset", { class: "field wide picks" }, h("legend", {}, "Initializations"), boxes),
    field("seeds", "Seeds", seeds),
    field("steps", "Steps", steps),
    h("div", { class: "check wide" }, scratch, h("label", { for: "scratch" }, "From random weights too")),
    h("div", { class: "wide" }, trouble, h("div", { class: "buttons" }, send)));
  node.addEventListener("submit", async (event) => {
    event.preventDefault();
    send.disabled = true;
    const initializations = boxes.map((box) => box.firstChild).filter((box) => box.checked).map((box) => box.value);
    const json = { dataset: dataset.value, initializations, seeds: Number(seeds.value), steps: Number(steps.value), compare_with_scratch: scratch.checked };
    try {
      location.hash = `#/comparisons/${(await post("comparisons", { json, signal })).id}`;
    } catch (error) {
      if (!signal.aborted) trouble.replaceChildren(failure(error));
      send.disabled = false;
    }
  });
  return node;
}

function showComparison(root, id, signal) {
  const holder = h("div");
  const heading = h("h1", {}, "Comparison");
  root.append(h("p", { class: "crumb" }, h("a", { href: "#/comparisons" }, "Comparisons"), h("code", {}, id)), heading, holder);
  loading(holder, signal, async () => {
    const first = await get(`comparisons/${encodeURIComponent(id)}`, { signal });
    say(heading, `Who is ahead on ${first.dataset}`);
    return watch(first, signal);
  });
}

function watch(first, signal) {
  const board = h("tbody");
  const state = h("p", { class: "lead", role: "status" });
  const names = [...Object.keys(first.jobs)];
  const [head] = Object.values(first.jobs);
  if (head?.[0]?.compare_with_scratch) names.push(SCRATCH);
  const shown = names.slice(0, COLOURS.length);
  const drawn = chart({
    title: "Accuracy on the test images, mean of the seeds that have come so far",
    runs: shown.map((label, i) => ({ label, colour: COLOURS[i] })),
    end: head?.[0]?.progress.steps ?? 1,
    ...ACCURACY,
    signal,
  });
  const stop = h("button", { type: "button" }, "Cancel what has not ended");
  const trouble = h("div");
  const remove = twice("Delete with its jobs", "Yes, delete them all", (event) => forget(event));

  function show(now) {
    const jobs = Object.values(now.jobs).flat();
    const ended = jobs.filter((job) => job.finished_at !== null).length;
    say(state, now.status === "ended" ? `All ${count(jobs.length)} jobs have ended.` : `${count(ended)} of ${count(jobs.length)} jobs have ended.`);
    board.replaceChildren(...now.leaderboard.map((place, i) => standing(place, i, now.seeds, names)));
    drawn.update(shown.map((name) => meanCurve(curvesOf(now, name))));
    stop.hidden = now.status === "ended";
    remove.hidden = !stop.hidden;
  }

  const act = (work) => async () => {
    try {
      await work();
    } catch (error) {
      trouble.replaceChildren(failure(error));
    }
  };
  stop.addEventListener("click", act(async () => show(await post(`comparisons/${first.id}/cancel`))));
  const forget = act(async () => {
    await request(`comparisons/${first.id}`, { method: "DELETE" });
    location.hash = "#/comparisons";
  });

  (async () => {
    let now = first;
    while (!signal.aborted && now.status !== "ended") {
      await pause(LOOK_MS, signal);
      if (signal.aborted || document.hidden) continue;
      try {
        show((now = await get(`comparisons/${first.id}`, { signal, quiet: true })));
      } catch {
        // The header says when the service is away; what is shown stays.
      }
    }
  })();
  show(first);
  const heads = ["", "Initialization", "Accuracy", "Behind the best", "Seeds"];
  const table = h("table", {}, h("thead", {}, h("tr", {}, heads.map((text) => h("th", { scope: "col" }, text || h("span", { class: "sr" }, "Place"))))), board);
  return [
    state,
    h("section", { class: "card scroll leaderboard", tabindex: "0", role: "region", "aria-label": "Leaderboard" }, table),
    h("section", { class: "card" }, drawn.node),
    jobsOf(first),
    trouble,
    h("p", { class: "buttons" }, stop, remove),
  ];
}

const points = (share, half) => (half === null ? (100 * share).toFixed(1) : `${(100 * share).toFixed(1)} ± ${(100 * half).toFixed(1)}`);

function standing(place, i, seeds, names) {
  const { initialization: name, accuracy, interval, behind, behind_interval: wide, finished } = place;
  const known = accuracy !== null;
  const colour = COLOURS[names.indexOf(name)];
  return h("tr", {},
    h("td", { class: "right" }, known ? count(i + 1) : ""),
    h("th", { scope: "row" }, colour && h("i", { class: `swatch ${colour}`, "aria-hidden": "true" }), " ",
      name === SCRATCH ? "from random weights" : h("a", { href: `#/initializations/${encodeURIComponent(name)}` }, name)),
    h("td", { class: "right" }, known ? `${points(accuracy, interval)} %` : "–"),
    h("td", { class: "right" }, !known ? "–" : i === 0 ? "best" : `${points(behind, wide)} points`),
    h("td", { class: "right" }, `${count(finished)} of ${count(seeds)}`));
}

function curvesOf(now, name) {
  const jobs = name === SCRATCH ? Object.values(now.jobs)[0] : now.jobs[name];
  const run = name === SCRATCH ? "scratch" : "initialization";
  return jobs.map((job) => (job.metrics?.[run] ?? []).map((point) => [point.step, point.accuracy])).filter((curve) => curve.length);
}

/** The mean over seeds at every step that all of those begun have reached. */
function meanCurve(curves) {
  if (!curves.length) return [];
  const at = curves.map((curve) => new Map(curve));
  const steps = [...at[0].keys()].filter((step) => at.every((one) => one.has(step)));
  return steps.map((step) => [step, at.reduce((sum, one) => sum + one.get(step), 0) / at.length]);
}

function jobsOf({ jobs }) {
  const links = Object.entries(jobs).map(([name, of]) =>
    h("li", {}, `${name}: `, of.flatMap((job) => [h("a", { href: `#/jobs/${job.id}` }, `seed ${job.seed}`), " "])));
  return h("details", {}, h("summary", {}, "The jobs"), h("ul", { class: "plain" }, links));
}
