// A canvas that fills its place, is sharp on every screen and scrolls over a taller drawing.

import { later, make, onScheme } from "./dom.js";

export class Surface {
  // `draw(context, width, height, scrolled)` paints; `attributes` are those of the canvas.
  constructor(attributes, draw) {
    this.draw = draw;
    this.canvas = make("canvas", { class: "surface", tabindex: "0", ...attributes });
    this.context = this.canvas.getContext("2d", { alpha: false });
    this.spacer = make("div", { class: "spacer" }, this.canvas);
    this.element = make("div", { class: "scroller" }, this.spacer);
    this.width = 0;
    this.height = 0;
    this.redraw = later(() => this.paint());
    this.element.addEventListener("scroll", this.redraw, { passive: true });
    new ResizeObserver(() => this.resize()).observe(this.element);
    onScheme(this.element, this.redraw);
  }

  get scrolled() {
    return this.element.scrollTop;
  }

  resize() {
    const width = this.element.clientWidth;
    const height = this.element.clientHeight;
    if (!width || !height) return;
    const ratio = devicePixelRatio || 1;
    if (width === this.width && height === this.height && ratio === this.ratio) return;
    [this.width, this.height, this.ratio] = [width, height, ratio];
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    // A resized canvas is blank, so it is painted before anyone can see it.
    this.paint();
  }

  // How tall the drawing is; what does not fit is reached by scrolling.
  setExtent(height) {
    const wanted = `${Math.ceil(Math.max(height, this.height))}px`;
    if (this.spacer.style.height !== wanted) this.spacer.style.height = wanted;
  }

  paint() {
    if (!this.width || !this.element.isConnected) return;
    const context = this.context;
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    this.draw(context, this.width, this.height, this.scrolled);
  }

  // Where a pointer is, from the canvas's upper left.
  place(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }
}

// A text cut to a width, with an ellipsis where something is missing; empty where nothing fits.
export class Labels {
  constructor() {
    this.widths = new Map();
  }

  fit(context, text, room) {
    if (room < 14) return "";
    let width = this.widths.get(text);
    if (width === undefined) {
      width = context.measureText(text).width;
      this.widths.set(text, width);
    }
    if (width <= room) return text;
    let kept = Math.floor((text.length * room) / width) - 1;
    // Letters differ in width: what was kept may still be too wide.
    while (kept > 0 && context.measureText(`${text.slice(0, kept)}…`).width > room) kept -= 1;
    return kept > 0 ? `${text.slice(0, kept)}…` : "";
  }

  width(text) {
    return this.widths.get(text) ?? 0;
  }
}

export const FONT = "12px ui-sans-serif, system-ui, 'Segoe UI', Helvetica, Arial, sans-serif";
export const BOLD = `600 ${FONT}`;

// A small box beside the pointer.
export class Tooltip {
  constructor() {
    this.element = make("div", { class: "tooltip", role: "tooltip", hidden: true });
  }

  // `lines`: the first is the name, the others are [name, value] or plain text.
  show(x, y, title, place, lines) {
    this.element.replaceChildren(
      make("strong", {}, title),
      make("span", { class: "place" }, place),
      ...lines.map(([name, value]) => make("span", {}, make("i", {}, `${name} `), value)),
    );
    this.element.hidden = false;
    const home = this.element.parentElement.getBoundingClientRect();
    const box = this.element.getBoundingClientRect();
    const left = x + 16 + box.width > home.width ? Math.max(4, x - box.width - 12) : x + 16;
    const top = y + 18 + box.height > home.height ? Math.max(4, y - box.height - 10) : y + 18;
    this.element.style.left = `${left}px`;
    this.element.style.top = `${top}px`;
  }

  hide() {
    this.element.hidden = true;
  }
}
