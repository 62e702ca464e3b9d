/** One job, live: status, curves, result, weights, predictions. */

import { get } from "../api.js";
import { facts, failure, h, loading, say } from "../dom.js";
import { count, decimal, duration, moment } from "../format.js";
import { follow } from "../stream.js";
import { curves, numbers } from "./curves.js";
import { label } from "./fields.js";
import { linkTo } from "./initializations.js";
import { keeping } from "./keeping.js";
import { predictor } from "./predict.js";
import { cancelControl, hasEnded, progressBar, statusPill } from "./status.js";

export function showJob(root, { id, signal }) {
  const holder = h("div");
  const heading = h("h1", {}, "Job");
  const crumb = h("p", { class: "crumb" }, h("a", { href: "#/jobs" }, "Jobs"), h("code", {}, id));
  root.append(crumb, heading, holder);
  loading(holder, signal, async () => {
    const [job, document] = await Promise.all([
      get(`finetune/${encodeURIComponent(id)}`, { signal }),
      get("openapi.json", { signal }),
    ]);
    say(heading, job.label || job.dataset);
    return [...watch(job, signal), settings(job, document.components.schemas.FinetuneRequest.properties)];
  });
}

/** Shows the job and follows its events until it has ended. */
function watch(job, signal) {
  const parts = [header(job), numbers(job), curves(job, signal), outcome(signal)];
  const connection = h("p", { class: "notice", role: "status", hidden: true });
  const points = { initialization: new Map(), scratch: new Map() };
  const note = ({ run, step, loss, accuracy }) => points[run]?.set(step, { loss, accuracy });
  const show = () => parts.forEach((part) => part.update(job, points));

  function take(next) {
    job = { ...next, metrics: next.metrics ?? job.metrics };
    for (const run of Object.keys(points)) (job.metrics?.[run] ?? []).forEach((point) => note({ run, ...point }));
    show();
  }

  const on = {
    event(name, data) {
      if (name === "end") return take(data);
      if (name === "point") note(data);
      if (name === "status") {
        const { status, step, attempt } = data;
        // A job ends on the page with its last event, which brings the result along.
        if (!hasEnded(data)) job = { ...job, status, attempt, progress: { ...job.progress, step } };
      }
      show();
    },
    connection(up) {
      connection.hidden = up;
      say(connection, up ? "" : "The connection broke; trying again. The job goes on meanwhile.");
    },
  };
  parts[0].cancelled = take;
  take(job);
  if (!hasEnded(job)) follow(job.id, signal, on).catch((error) => connection.replaceWith(failure(error)));
  return [parts[0].node, connection, ...parts.slice(1).map((part) => part.node)];
}

function header(job) {
  const part = { cancelled: null };
  const pill = statusPill();
  const bar = progressBar("Progress");
  const left = h("span", { class: "muted" });
  const reason = h("p", { class: "notice bad", role: "alert", hidden: true });
  const cancel = cancelControl(job.id, (next) => part.cancelled(next));
  const repeat = h("a", { class: "button" }, "Run again");
  let start = null;
  part.node = h(
    "section",
    { class: "card" },
    h(
      "div",
      { class: "job-top" },
      h(
        "div",
        {},
        pill.node,
        h(
          "p",
          { class: "job-title" },
          job.dataset,
          h("span", { class: "muted" }, " from "),
          h("a", { href: linkTo(job.initialization.id) }, job.initialization.id),
        ),
      ),
      h("div", { class: "buttons" }, cancel.node, repeat),
    ),
    reason,
    bar.node,
    h("p", { class: "line" }, h("span", {}, "created ", moment(job.created_at)), left),
  );

  /** Time left by the pace since the page first saw a step: the clocks of browser and service may differ. */
  function timeLeft({ status, progress, started_at: began, finished_at: ended, predicted_seconds: predicted }) {
    if (ended && status === "succeeded") return `${count(progress.steps)} steps in ${duration(ended - began)}`;
    if (ended) return began ? `stopped after ${duration(ended - began)}` : "";
    const expected = predicted ? `, about ${duration(predicted)} by what such jobs took` : "";
    if (status === "queued") return `waits for its turn${expected}`;
    if (status !== "running" || !progress.step) return expected.slice(2);
    start ??= { step: progress.step, at: performance.now() };
    const pace = (progress.step - start.step) / (performance.now() - start.at);
    return pace > 0 ? `about ${duration((progress.steps - progress.step) / pace / 1000)} left` : "";
  }

  part.update = (now) => {
    for (const piece of [pill, bar, cancel]) piece.update(now);
    say(left, timeLeft(now));
    reason.hidden = !now.error;
    say(reason, now.error ? `It failed: ${now.error.message}` : "");
    repeat.hidden = !hasEnded(now);
    repeat.href = `#/finetune?${new URLSearchParams(repeated(now))}`;
  };
  return part;
}

function repeated(job) {
  const kept = {
    dataset: job.dataset,
    initialization: job.initialization.id,
    seed: job.seed,
    compare_with_scratch: job.compare_with_scratch,
    label: job.label,
  };
  for (const [name, value] of Object.entries(job.config)) if (value !== null && value !== undefined) kept[name] = value;
  return kept;
}

/** Nothing while it runs; then predictions, and what becomes of the job. */
function outcome(signal) {
  const node = h("div", { class: "stack" });
  let shown = null;
  return {
    node,
    update(job) {
      if (!hasEnded(job) || shown === job.status) return;
      shown = job.status;
      node.replaceChildren(...(job.result?.weights.url ? [predictor(job.id, signal)] : []), keeping(job));
    },
  };
}

/** Everything that is needed to repeat the job, whatever the recipe has, by the names that the form has. */
function settings(job, fields) {
  const words = (name, value) => {
    if (value === null || value === undefined) return name === "train_size" ? "all" : "automatic";
    if (typeof value === "boolean") return value ? "yes" : "no";
    if (Array.isArray(value)) return value.join(", ");
    return Number.isInteger(value) ? count(value) : typeof value === "number" ? decimal(value) : String(value);
  };
  return h(
    "section",
    { class: "card" },
    h("h2", {}, "Settings"),
    facts([
      ["Dataset", job.dataset],
      ["Initialization", job.initialization.id],
      ["Seed", count(job.seed)],
      ...Object.entries(job.config).map(([name, value]) => [label(fields[name], name), words(name, value)]),
      ["Job", job.id],
    ]),
  );
}
