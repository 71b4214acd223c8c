// A stretch of time chosen with the pointer: the page is asked for again with it in the address.

import { open, zoomed } from "./place.js";

const SVG = "http://www.w3.org/2000/svg";
const LEAST = 6; // pixels; less is a click

export class Brush {
  constructor(svg, data, started) {
    this.svg = svg;
    this.plot = data.plot;
    this.moments = momentsOf(data);
    this.started = started;
    this.start = null;
    this.isActive = false;
    this.swallow = false;
    this.box = document.createElementNS(SVG, "rect");
    this.box.setAttribute("class", "chart-brush");
    svg.addEventListener("pointerdown", (event) => this.down(event));
    svg.addEventListener("pointermove", (event) => this.move(event));
    svg.addEventListener("pointerup", (event) => this.up(event));
    svg.addEventListener("pointercancel", () => this.cancel());
    svg.addEventListener("dragstart", (event) => event.preventDefault());
  }

  place(event) {
    const matrix = this.svg.getScreenCTM();
    return new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
  }

  down(event) {
    this.swallow = false;
    // A finger scrolls the page.
    if (event.button !== 0 || event.pointerType === "touch" || this.moments.length < 2) return;
    const { x, y } = this.place(event);
    const { left, top, right, bottom } = this.plot;
    if (x >= left && x <= right && y >= top && y <= bottom) this.start = x;
  }

  move(event) {
    if (this.start === null) return;
    const { left, top, right, bottom } = this.plot;
    const end = Math.min(Math.max(this.place(event).x, left), right);
    if (!this.isActive) {
      if (Math.abs(end - this.start) < LEAST) return;
      this.isActive = true;
      this.started();
      this.svg.setPointerCapture(event.pointerId);
      this.svg.append(this.box);
    }
    this.end = end;
    this.box.setAttribute("x", Math.min(this.start, end));
    this.box.setAttribute("width", Math.abs(end - this.start));
    this.box.setAttribute("y", top);
    this.box.setAttribute("height", bottom - top);
  }

  up() {
    const wasActive = this.isActive;
    const ends = [this.start, this.end].sort((one, other) => one - other);
    this.cancel();
    if (!wasActive) return;
    this.swallow = true;
    open(zoomed(Math.floor(this.moment(ends[0])), Math.ceil(this.moment(ends[1]))));
  }

  cancel() {
    this.start = null;
    this.isActive = false;
    this.box.remove();
  }

  // The click that ends a brush is none.
  swallowsClick() {
    return this.swallow;
  }

  // The moment at a place: between the points on either side, as the axis runs.
  moment(x) {
    const { moments } = this;
    const after = moments.findIndex((one) => one.x >= x);
    if (after === 0) return moments[0].moment;
    if (after < 0) return moments[moments.length - 1].moment;
    const [one, other] = [moments[after - 1], moments[after]];
    return one.moment + ((x - one.x) / (other.x - one.x)) * (other.moment - one.moment);
  }
}

function momentsOf(data) {
  const all = data.series.flatMap((series) => series.points).sort((one, other) => one.x - other.x);
  return all.filter((point, i) => i === 0 || point.x > all[i - 1].x);
}
