// Charts that answer: values under the pointer and by keys, switches for series, zoom by the URL.
// The pictures are complete without this. Everything comes from data attributes and goes in as text.

import { Brush } from "./brush.js";
import { nearest, readChart, step } from "./data.js";
import { mountSwitches, shownSeries } from "./switches.js";
import { Tip } from "./tip.js";
import { isZoomed, open, unzoomed } from "./place.js";

const SVG = "http://www.w3.org/2000/svg";
const CLOSE = 24; // pixels from a point within which a click means it

class Chart {
  constructor(svg, tip) {
    this.svg = svg;
    this.tip = tip;
    this.data = readChart(svg);
    this.near = null;
    this.brush = svg.dataset.zoom === "url" ? new Brush(svg, this.data, () => this.leave()) : null;
    this.cursor = this.makeCursor();
    svg.classList.add("chart-live");
    svg.setAttribute("tabindex", "0");
    svg.closest(".chart-frame")?.removeAttribute("tabindex"); // it is reached through the chart
    this.quiet();
    svg.addEventListener("pointermove", (event) => this.move(event));
    svg.addEventListener("pointerleave", () => this.leave());
    svg.addEventListener("blur", () => this.leave());
    svg.addEventListener("click", (event) => this.click(event));
    svg.addEventListener("keydown", (event) => this.key(event));
  }

  // The browser's own tooltips would cover ours, and hundreds of links would trap the Tab key.
  quiet() {
    for (const link of this.svg.querySelectorAll(".chart-series a")) {
      link.setAttribute("tabindex", "-1");
      link.setAttribute("aria-label", link.querySelector("title")?.textContent ?? "");
    }
    for (const title of this.svg.querySelectorAll(".chart-series title")) title.remove();
  }

  makeCursor() {
    const group = document.createElementNS(SVG, "g");
    group.setAttribute("class", "chart-cursor");
    group.append(document.createElementNS(SVG, "line"), document.createElementNS(SVG, "circle"));
    group.lastChild.setAttribute("r", "6.5");
    return group;
  }

  // From the window to the picture, which may be drawn at any size.
  inside(event) {
    const matrix = this.svg.getScreenCTM();
    if (!matrix) return null;
    const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
    const { left, top, right, bottom } = this.data.plot;
    const within = place.x >= left && place.x <= right && place.y >= top && place.y <= bottom;
    return within ? place : null;
  }

  move(event) {
    if (this.brush?.isActive) return;
    const place = this.inside(event);
    const near = place && nearest(shownSeries(this.data), place.x, place.y);
    if (!near) {
      this.leave();
      return;
    }
    this.point(near, event.clientX, event.clientY);
    const close = near.href && Math.hypot(near.x - place.x, near.y - place.y) <= CLOSE;
    this.svg.style.cursor = close ? "pointer" : this.brush ? "crosshair" : "default";
  }

  point(near, left, top) {
    this.near = near;
    const [line, circle] = this.cursor.children;
    line.setAttribute("x1", near.x);
    line.setAttribute("x2", near.x);
    line.setAttribute("y1", this.data.plot.top);
    line.setAttribute("y2", this.data.plot.bottom);
    circle.setAttribute("cx", near.x);
    circle.setAttribute("cy", near.y);
    if (!this.cursor.parentNode) this.svg.append(this.cursor);
    this.tip.show(near, shownSeries(this.data), left, top);
  }

  leave() {
    this.near = null;
    this.cursor.remove();
    this.tip.hide();
    this.svg.style.cursor = "";
  }

  click(event) {
    if (this.brush?.swallowsClick() || event.target.closest("a")) return;
    const place = this.inside(event);
    const near = place && this.near;
    if (!near?.href || Math.hypot(near.x - place.x, near.y - place.y) > CLOSE) return;
    open(near.href, event.ctrlKey || event.metaKey);
  }

  key(event) {
    if (event.target !== this.svg || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Escape" && (this.near || this.brush?.isActive)) {
      this.brush?.cancel();
      this.leave();
    } else if (event.key === "Enter" && this.near?.href) {
      open(this.near.href, event.shiftKey);
    } else {
      const next = step(shownSeries(this.data), this.near, event.key);
      if (!next) return;
      const place = new DOMPoint(next.x, next.y).matrixTransform(this.svg.getScreenCTM());
      this.point(next, place.x, place.y);
      this.tip.tell(next);
    }
    event.preventDefault();
    event.stopPropagation();
  }
}

function offerWhole(svg) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "chart-reset";
  button.textContent = "Show the whole range";
  button.addEventListener("click", () => open(unzoomed()));
  svg.after(button);
}

// Make every chart within `root` answer. What answers already is left alone.
export function enliven(root = document) {
  const tip = Tip.of(document);
  const charts = [];
  for (const svg of root.querySelectorAll("svg.chart-line:not(.chart-live)")) {
    if (svg.dataset.plot) charts.push(new Chart(svg, tip));
  }
  mountSwitches(charts.map((chart) => chart.data), () => charts.forEach((chart) => chart.leave()));
  const first = charts.find((chart) => chart.brush);
  if (first && isZoomed()) offerWhole(first.svg);
  return charts.length;
}
