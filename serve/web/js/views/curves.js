/** A job's numbers and curves, which grow while it runs. */

import { ACCURACY, LOSS, chart } from "../charts.js";
import { h, say } from "../dom.js";
import { checksum, downloadButton } from "../files.js";
import { count, measured, percent } from "../format.js";
import { hasEnded } from "./status.js";

/** The numbers people come for, and the model when there is one. */
export function numbers(job) {
  const accuracy = h("strong");
  const scratch = h("strong");
  const gain = h("strong");
  const gainLabel = h("span");
  const number = (value, label, name = "") => h("div", { class: `number ${name}` }, value, h("span", {}, label));
  const node = h(
    "section",
    { class: "numbers", "aria-label": "Accuracy on the test images" },
    number(accuracy, "accuracy", "main"),
    job.compare_with_scratch && number(scratch, "from scratch"),
    job.compare_with_scratch && h("div", { class: "number" }, gain, gainLabel),
  );
  let download = null;
  return {
    node,
    update(now, points) {
      const [ours, theirs] = ["initialization", "scratch"].map((run) => [...points[run].values()].at(-1)?.accuracy);
      say(accuracy, percent(ours) || "–");
      say(scratch, percent(theirs) || "–");
      // Only where both have a point: one of them is always a step ahead.
      const both = [...points.initialization.keys()].filter((step) => points.scratch.has(step)).at(-1);
      const difference = 100 * (points.initialization.get(both)?.accuracy - points.scratch.get(both)?.accuracy);
      say(gainLabel, both && !hasEnded(now) ? `difference at step ${count(both)}, points` : "difference, points");
      say(gain, Number.isFinite(difference) ? `${difference < 0 ? "−" : "+"}${Math.abs(difference).toFixed(1)}` : "–");
      if (now.result?.weights.url && !download) node.append((download = model(now)));
    },
  };
}

function model({ id, result: { weights } }) {
  const button = downloadButton(`finetune/${id}/weights`, {
    name: `${id}.safetensors`,
    size: weights.size,
    label: "Download the model",
    primary: true,
  });
  return h("div", { class: "get" }, button, checksum(weights.sha256));
}

/** Accuracy and loss as they grow, and the same as a table. */
export function curves(job, signal) {
  const runs = [{ name: "initialization", label: "initialization", colour: "accent" }];
  if (job.compare_with_scratch) runs.push({ name: "scratch", label: "scratch", colour: "second" });
  const common = { runs, end: job.progress.steps, signal };
  const charts = {
    accuracy: chart({
      title: "Accuracy on the test images",
      ...ACCURACY,
      ...common,
    }),
    loss: chart({ title: "Training loss", ...LOSS, ...common }),
  };
  const body = h("tbody");
  const head = h(
    "tr",
    {},
    h("th", { scope: "col" }, "Step"),
    runs.flatMap((run) => [
      h("th", { scope: "col" }, `Accuracy, ${run.label}`),
      h("th", { scope: "col" }, `Loss, ${run.label}`),
    ]),
  );
  const numbers = h(
    "details",
    {},
    h("summary", {}, "All points"),
    h("div", { class: "scroll", tabindex: "0" }, h("table", {}, h("thead", {}, head), body)),
  );
  let drawn = 0;
  return {
    node: h(
      "section",
      { class: "card" },
      h("div", { class: "charts" }, charts.accuracy.node, charts.loss.node),
      numbers,
    ),
    update(_, points) {
      const known = runs.reduce((sum, run) => sum + points[run.name].size, 0);
      if (known === drawn) return;
      drawn = known;
      for (const name of ["accuracy", "loss"]) {
        charts[name].update(runs.map((run) => [...points[run.name]].map(([step, point]) => [step, point[name]])));
      }
      const steps = [...new Set(runs.flatMap((run) => [...points[run.name].keys()]))].sort((a, b) => a - b);
      const cells = (step) =>
        runs.flatMap(({ name }) => [percent(points[name].get(step)?.accuracy), measured(points[name].get(step)?.loss)]);
      body.replaceChildren(
        ...steps.map((step) =>
          h(
            "tr",
            {},
            h("th", { scope: "row" }, count(step)),
            cells(step).map((text) => h("td", {}, text)),
          ),
        ),
      );
    },
  };
}
