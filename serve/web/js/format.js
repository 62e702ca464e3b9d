/** Numbers, sizes, times and names as people read them; none of it trusts what a card says. */

import { h } from "./dom.js";

const NUMBER = new Intl.NumberFormat("en");
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const RELATIVE = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
const UNITS = [
  ["year", 31557600],
  ["month", 2629800],
  ["day", 86400],
  ["hour", 3600],
  ["minute", 60],
];

export const count = (value) => (Number.isFinite(value) ? NUMBER.format(value) : "");
export const compact = (value) =>
  Number.isFinite(value) ? COMPACT.format(value).replace("K", " k").replace(/[MB]$/, " $&") : "";
export const percent = (value) => (Number.isFinite(value) ? `${(100 * value).toFixed(1)} %` : "");
/** A number that somebody chose, 0.05: as short as it is. */
export const decimal = (value) => (Number.isFinite(value) ? String(Number(value.toPrecision(3))) : "");
/** A number that was measured: 3.29 and 3.30 are as long as each other. */
export const measured = (value) => (Math.abs(value) < 100 ? value.toPrecision(3) : compact(value));
/** Ticks of one axis, all with as many decimals as the longest needs. */
export function alike(values) {
  const places = Math.max(0, ...values.map((value) => decimal(value).split(".")[1]?.length ?? 0));
  return values.map((value) => value.toFixed(places));
}

export function bytes(value) {
  if (!Number.isFinite(value)) return "";
  if (value < 1000) return `${value} B`;
  const power = Math.min(3, Math.floor(Math.log10(value) / 3));
  return `${(value / 1000 ** power).toFixed(1)} ${["B", "kB", "MB", "GB"][power]}`;
}

export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/** "3 hours ago", with the exact time on hover. Takes seconds since 1970 or a date as text. */
export function moment(value) {
  const date = new Date(typeof value === "number" ? value * 1000 : String(value));
  if (Number.isNaN(date.getTime())) return h("span", {}, String(value ?? ""));
  const seconds = (date.getTime() - Date.now()) / 1000;
  const [unit, size] = UNITS.find(([, length]) => Math.abs(seconds) >= length) ?? [null, 1];
  const text = unit ? RELATIVE.format(Math.round(seconds / size), unit) : "just now";
  return h("time", { datetime: date.toISOString(), title: date.toLocaleString("en") }, text);
}

/** Sections of a card are {"name": …} or plain text. */
export function nameOf(section) {
  const known = section && typeof section === "object";
  return String((known ? (section.class_name ?? section.name) : section) ?? "");
}

/** Whether only its owner's program has the model, so that it cannot be fine-tuned here. */
export const isOwn = (card) => card.model?.name === "own";

export function tasksOf(card) {
  return Array.isArray(card.tasks) ? card.tasks.map(String) : [];
}

/** The meta-training curve of a card as [steps, loss] pairs; empty when it has none that can be drawn. */
export function curveOf(card) {
  const curve = card.metrics?.loss_curve;
  if (!Array.isArray(curve)) return [];
  return curve.filter((point) => Array.isArray(point) && Number.isFinite(point[0]) && Number.isFinite(point[1]));
}
