// One tooltip for the page: the moment, and what every series has there. Text goes in as text.

import { beside } from "./data.js";
import { told } from "./place.js";

const SVG = "http://www.w3.org/2000/svg";
const MOST = 12;
const AWAY = 16;
const tips = new WeakMap();

export class Tip {
  static of(owner) {
    if (!tips.has(owner)) tips.set(owner, new Tip());
    return tips.get(owner);
  }

  constructor() {
    this.box = document.createElement("div");
    this.box.className = "chart-tip";
    this.box.hidden = true;
    this.voice = document.createElement("p");
    this.voice.className = "chart-unseen";
    this.voice.setAttribute("aria-live", "polite");
    document.body.append(this.box, this.voice);
    addEventListener("scroll", () => this.hide(), { passive: true, capture: true });
  }

  show(near, series, left, top) {
    const when = line("chart-when", [near.label, told(near.moment)].filter(Boolean).join(" · "));
    const others = series.filter((one) => one !== near.series).map((one) => beside(one, near));
    const rows = [near, ...others.filter(Boolean)].slice(0, MOST);
    rows.sort((one, other) => series.indexOf(one.series) - series.indexOf(other.series));
    const said = near.note ? [line("chart-said", near.note)] : [];
    this.box.replaceChildren(when, ...rows.map((point) => row(point, point === near)), ...said);
    this.box.hidden = false;
    const { width, height } = this.box.getBoundingClientRect();
    const across = left + AWAY + width > innerWidth ? left - AWAY - width : left + AWAY;
    const down = top + AWAY + height > innerHeight ? top - AWAY - height : top + AWAY;
    this.box.style.left = `${Math.max(4, across)}px`;
    this.box.style.top = `${Math.max(4, down)}px`;
  }

  hide() {
    this.box.hidden = true;
  }

  // For those who do not see it.
  tell(point) {
    const parts = [point.series.name, point.value, point.label, told(point.moment), point.note];
    this.voice.textContent = parts.filter(Boolean).join(", ");
  }
}

function line(kind, text) {
  const made = document.createElement("p");
  made.className = kind;
  made.textContent = text;
  return made;
}

function row(point, isNear) {
  const made = line(isNear ? "chart-what chart-near" : "chart-what", "");
  const name = document.createElement("span");
  name.textContent = point.series.name;
  const value = document.createElement("span");
  value.textContent = point.value;
  made.append(swatch(point.series.key), name, value);
  return made;
}

// The series' line and shape, as in the legend.
function swatch(key) {
  const made = document.createElementNS(SVG, "svg");
  const shapes = key ? [...key.querySelectorAll("path")] : [];
  const start = shapes[0]?.getAttribute("d").match(/^M([\d.]+) ([\d.]+)/);
  made.setAttribute("class", "chart");
  if (start) {
    made.setAttribute("viewBox", `${Number(start[1]) - 1} ${Number(start[2]) - 7} 28 14`);
    made.append(...shapes.map((shape) => shape.cloneNode(true)));
  }
  return made;
}
