// What a chart says of itself: where its plot lies, and the points of its series.

import { safeHref } from "./place.js";

const MOST = 10000; // points of one series; the maker of charts gives far fewer

export function readChart(svg) {
  const [left, top, right, bottom] = svg.dataset.plot.split(" ").map(Number);
  const series = [...svg.querySelectorAll(".chart-series")].map(readSeries);
  return { svg, plot: { left, top, right, bottom }, series };
}

function readSeries(element) {
  const { name = "", href = "" } = element.dataset;
  const key = [...element.ownerSVGElement.querySelectorAll(".chart-key")].find(
    (one) => one.dataset.name === name,
  );
  const series = { name, element, key, isShown: true, points: [] };
  for (const row of parse(element.dataset.points).slice(0, MOST)) {
    if (!Array.isArray(row)) continue;
    const [x, y, moment, value, label, rest, note] = row;
    if (![x, y, moment].every(Number.isFinite)) continue;
    const link = typeof rest === "string" ? safeHref(href + rest) : "";
    const texts = { value: words(value), label: words(label), note: words(note) };
    series.points.push({ series, x, y, moment, href: link, ...texts });
  }
  return series;
}

function parse(text) {
  try {
    const found = JSON.parse(text ?? "[]");
    return Array.isArray(found) ? found : [];
  } catch {
    return [];
  }
}

function words(value) {
  return typeof value === "string" ? value : "";
}

// The point nearest to a place. Across counts more than down: one reads a chart by moments.
export function nearest(series, x, y) {
  let best = null;
  let least = Infinity;
  for (const one of series) {
    for (const point of one.points) {
      const distance = 4 * (point.x - x) ** 2 + (point.y - y) ** 2;
      if (distance < least) [best, least] = [point, distance];
    }
  }
  return best;
}

// The point of another series at the same moment, or nothing.
export function beside(series, near) {
  const found = nearest([series], near.x, near.y);
  return found && Math.abs(found.x - near.x) < 2 ? found : null;
}

// Where a key leads from a point: along its series, or to the next series.
export function step(series, near, key) {
  const full = series.filter((one) => one.points.length);
  if (!full.length) return null;
  const place = near ? full.indexOf(near.series) : -1;
  const { points } = full[Math.max(place, 0)];
  if (key === "Home") return points[0];
  if (key === "End") return points[points.length - 1];
  if (key === "ArrowRight" || key === "ArrowLeft") {
    if (place < 0) return key === "ArrowRight" ? points[0] : points[points.length - 1];
    const next = points.indexOf(near) + (key === "ArrowRight" ? 1 : -1);
    return points[Math.min(Math.max(next, 0), points.length - 1)];
  }
  if (key === "ArrowDown" || key === "ArrowUp") {
    if (place < 0) return points[0];
    const next = (place + (key === "ArrowDown" ? 1 : -1) + full.length) % full.length;
    return nearest([full[next]], near.x, near.y);
  }
  return null;
}
