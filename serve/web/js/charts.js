/** Curves: a large one that can grow while it is watched (uPlot), and a small one for lists (SVG). */

import { h, say, svg } from "./dom.js";
import { alike, compact, measured, percent } from "./format.js";

const HEIGHT = 220;
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** How a chart shows accuracies: the whole range when there is much to see, else more than the curve. */
export const ACCURACY = {
  range: (_, high) => [0, high > 0.4 ? 1 : high * 1.25 || 1],
  format: percent,
  ticks: (values) => alike(values.map((value) => 100 * value)).map((text) => `${text} %`),
  axis: "accuracy",
};

/** How a chart shows losses: around the curve. */
export const LOSS = {
  range: (low, high) => {
    const edge = 0.12 * (high - low || high || 1);
    return [Math.max(0, low - edge), high + edge];
  },
  format: measured,
  axis: "loss",
};

/**
 * A chart with its title and a legend that follows the pointer.
 *
 * runs: [{ label, colour }], end: where the x axis ends, range(low, high): the y axis, format(value): text of a value,
 * ticks(values): texts at the y axis, axis: what it measures.
 * update(curves) takes one [[x, y], …] per run.
 */
export function chart({ title, runs, range, format, ticks = alike, end = null, unit = "step", axis = "", signal }) {
  const values = runs.map(() => h("strong"));
  const where = h("span", { class: "muted" });
  const legend = h(
    "p",
    { class: "legend" },
    runs.map((run, i) =>
      h("span", {}, h("i", { class: `swatch ${run.colour}`, "aria-hidden": "true" }), run.label, " ", values[i]),
    ),
    where,
  );
  const holder = h("div", { class: "plot", role: "img", "aria-label": `${title}: no points yet` });
  const node = h("figure", { class: "chart" }, h("figcaption", {}, title), legend, holder);
  let curves = runs.map(() => []);
  let plot = null;

  function read(index) {
    const x = index === null ? undefined : plot?.data[0][index];
    runs.forEach((_, i) => {
      const point = x === undefined ? curves[i].at(-1) : curves[i].find(([at]) => at === x);
      say(values[i], point ? format(point[1]) : "–");
    });
    const shown = x ?? Math.max(...curves.map((curve) => curve.at(-1)?.[0] ?? 0));
    say(where, curves.some((curve) => curve.length) ? `at ${unit} ${shown.toLocaleString("en")}` : "no points yet");
  }

  function draw() {
    const width = Math.floor(holder.clientWidth);
    if (!width) return;
    if (plot) plot.setSize({ width, height: HEIGHT });
    else plot = new globalThis.uPlot(options(width, runs, { range, ticks, end, unit, axis }, read), align(curves), holder);
  }

  const size = new ResizeObserver(draw);
  size.observe(holder);
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", () => plot?.redraw(), { signal });
  signal.addEventListener("abort", () => {
    size.disconnect();
    plot?.destroy();
  });
  read(null);
  return {
    node,
    update(next) {
      curves = next;
      plot?.setData(align(curves));
      read(null);
      const told = runs.map((run, i) => `${run.label} ${values[i].textContent}`).join(", ");
      holder.setAttribute("aria-label", `${title}: ${told}, ${where.textContent}`);
    },
  };
}

/** uPlot wants one list of x and a list of y for each run, with gaps as null. */
function align(curves) {
  const xs = [...new Set(curves.flatMap((curve) => curve.map(([x]) => x)))].sort((a, b) => a - b);
  return [
    xs,
    ...curves.map((curve) => {
      const at = new Map(curve);
      return xs.map((x) => at.get(x) ?? null);
    }),
  ];
}

function options(width, runs, { range, ticks, end, unit, axis }, read) {
  const font = `11px ${colour("--sans")}`;
  const look = {
    stroke: () => colour("--muted"),
    font,
    ticks: { show: false },
    grid: { stroke: () => colour("--line"), width: 1 },
  };
  const few = (plot) => plot.data[0].length < 60;
  return {
    width,
    height: HEIGHT,
    padding: [10, 14, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 8 } },
    scales: {
      x: {
        time: false,
        range: (_, low, high) => (end === null ? [low ?? 0, high > low ? high : (low ?? 0) + 1] : [0, end]),
      },
      y: { range: (_, low, high) => (low === null || low === undefined ? [0, 1] : range(low, high)) },
    },
    axes: [
      { ...look, ...title(unit, 16), size: 30, space: 60, incrs: WHOLE, values: (_, values) => values.map(compact) },
      { ...look, ...title(axis, 14), size: 52, space: 36, values: (_, values) => distinct(ticks(values)) },
    ],
    series: [
      {},
      ...runs.map((run) => ({
        label: run.label,
        stroke: () => colour(`--${run.colour}`),
        width: 2,
        spanGaps: true,
        points: { show: few, size: 5, fill: () => colour("--card"), stroke: () => colour(`--${run.colour}`) },
      })),
    ],
    hooks: { setCursor: [(plot) => read(plot.cursor.idx ?? null)] },
  };
}

const WHOLE = [1, 2, 5].flatMap((one) => [...Array(9).keys()].map((power) => one * 10 ** power)).sort((a, b) => a - b);
const title = (label, labelSize) => (label ? { label, labelSize, labelFont: `11px ${colour("--sans")}`, labelGap: 0 } : {});

/** A tick whose text is the one before it says nothing. */
function distinct(texts) {
  return texts.map((text, i) => (i && text === texts[i - 1] ? "" : text));
}

/** A curve of a few hundred points as a line without axes. */
export function sparkline(points, label) {
  const [width, height, edge] = [160, 48, 3];
  const xs = points.map(([x]) => x);
  const ys = points.map(([, y]) => y);
  const place = (value, all, length) => {
    const low = Math.min(...all);
    return ((value - low) / (Math.max(...all) - low || 1)) * length;
  };
  const path = points.map(([x, y], i) => {
    const left = edge + place(x, xs, width - 2 * edge);
    const down = height - edge - place(y, ys, height - 2 * edge);
    return `${i ? "L" : "M"}${left.toFixed(1)} ${down.toFixed(1)}`;
  });
  const box = { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label };
  return svg("svg", box, svg("path", { d: path.join("") }));
}
