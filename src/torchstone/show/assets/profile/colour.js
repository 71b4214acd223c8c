// Colours for light and dark: fills that text can be read on, for groups, kinds and changes.

import { isDark } from "./dom.js";

// Hues in an order that keeps neighbours apart; the first is our own orange.
const HUES = [52, 245, 150, 300, 95, 205, 20, 270, 175, 335, 120, 225];
const OTHER = HUES.length;
export const STEPS = 10;
const KINDS = ["python", "op", "kernel", "native", "annotation", "gc", "wait", "root"];
const KIND_HUES = { python: 1, op: 0, kernel: 2, native: 3, annotation: 4, gc: 6, wait: 9 };

export function palette() {
  const dark = isDark();
  const fill = (hue) => (dark ? `oklch(0.5 0.1 ${hue})` : `oklch(0.86 0.09 ${hue})`);
  const fills = [...HUES.map(fill), dark ? "#3d444e" : "#dde1e6"];
  const change = [];
  for (let step = -STEPS; step <= STEPS; step += 1) {
    const size = Math.abs(step) / STEPS;
    const hue = step > 0 ? 25 : 255;
    const chroma = (0.015 + 0.13 * size).toFixed(3);
    const light = (dark ? 0.36 + 0.14 * size : 0.93 - 0.19 * size).toFixed(3);
    change.push(step === 0 ? (dark ? "#343a43" : "#e7eaee") : `oklch(${light} ${chroma} ${hue})`);
  }
  return {
    dark,
    fills,
    change,
    paper: dark ? "#14171c" : "#ffffff",
    ink: dark ? "#f2f4f7" : "#1b1f24",
    soft: dark ? "#9aa4b1" : "#5f6873",
    grid: dark ? "#2b313a" : "#e4e7eb",
    head: dark ? "#232932" : "#eef0f3",
    rest: dark ? "#262c35" : "#eceff2",
    dim: dark ? "#2c323b" : "#e9ecef",
    dimInk: dark ? "#8b95a3" : "#767f8a",
    match: dark ? "#c2570c" : "#ffa94d",
    select: dark ? "#ffffff" : "#14171c",
    lines: dark ? ["#fb923c", "#7aa7ff"] : ["#c2410c", "#1d4ed8"],
  };
}

// The number of a change's colour; -1 vanished, 0 the same, 1 new.
export function changeIndex(change) {
  return Math.round(Math.max(-1, Math.min(1, change)) * STEPS) + STEPS;
}

// A fill's number for each frame, and what the numbers mean: the largest groups first.
export function groupColours(groups, weights) {
  const sums = new Map();
  for (let i = 0; i < groups.length; i += 1) {
    sums.set(groups[i], (sums.get(groups[i]) ?? 0) + (weights[i] || 0));
  }
  const names = [...sums.keys()].sort((a, b) => sums.get(b) - sums.get(a));
  const numbers = new Map(names.slice(0, OTHER).map((name, i) => [name, i]));
  const legend = names.slice(0, OTHER).map((name) => [name, numbers.get(name)]);
  if (names.length > OTHER) legend.push([`${names.length - OTHER} others`, OTHER]);
  return { of: Uint8Array.from(groups, (name) => numbers.get(name) ?? OTHER), legend };
}

export function kindColours(model) {
  const present = KINDS.filter((kind) => kind !== "root" && model.kinds.includes(kind));
  return {
    of: Uint8Array.from(model.kinds, (kind) => KIND_HUES[kind] ?? OTHER),
    legend: present.map((kind) => [kind, KIND_HUES[kind] ?? OTHER]),
  };
}

export function coloursOf(model, by, weights) {
  return by === "kind" ? kindColours(model) : groupColours(model.groups, weights);
}
