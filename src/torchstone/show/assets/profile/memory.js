// Memory over time, and what was alive at its peak.

import { palette } from "./colour.js";
import { make, pairs, refill, switcher } from "./dom.js";
import { FONT, Surface, Tooltip } from "./surface.js";
import { Table } from "./table.js";
import { mountTree } from "./tree_view.js";
import { formatBytes, formatCount, formatSeconds, ticks } from "./units.js";

const LEFT = 76;
const BOTTOM = 24;
const TOP = 12;
const NS = 1e-9;
const NAMES = ["resident", "heap"];

// Lines of bytes over time; of many readings in one pixel the least and the most are drawn.
class Chart {
  constructor(memory) {
    this.memory = memory;
    this.series = NAMES.filter((name) => memory[name] && memory[name].length === memory.time.length);
    const { time } = memory;
    this.low = time[0];
    this.high = Math.max(time[time.length - 1], this.low + 1);
    this.most = memory.peak_bytes;
    for (const name of this.series) for (const value of memory[name]) if (value > this.most) this.most = value;
    this.at = -1;
    const words = `Memory over time, at most ${formatBytes(this.most)}`;
    this.surface = new Surface({ role: "img", "aria-label": words }, (...given) => this.draw(...given));
    this.tooltip = new Tooltip();
    this.element = make("div", { class: "stage chart" }, this.surface.element, this.tooltip.element);
    this.surface.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.surface.canvas.addEventListener("pointerleave", () => this.point(null));
  }

  x(time, width) {
    return LEFT + ((time - this.low) / (this.high - this.low)) * (width - LEFT - 12);
  }

  y(value, height) {
    return TOP + (1 - value / (this.most * 1.05 || 1)) * (height - TOP - BOTTOM);
  }

  draw(context, width, height) {
    const colours = palette();
    context.fillStyle = colours.paper;
    context.fillRect(0, 0, width, height);
    context.font = FONT;
    context.textBaseline = "middle";
    this.axes(context, colours, width, height);
    this.series.forEach((name) => this.line(context, colours.lines[NAMES.indexOf(name)], this.memory[name], width, height));
    this.peak(context, colours, width, height);
    if (this.at >= 0) {
      context.fillStyle = colours.soft;
      context.fillRect(Math.round(this.x(this.memory.time[this.at], width)), TOP, 1, height - TOP - BOTTOM);
    }
  }

  axes(context, colours, width, height) {
    const unit = 1024 ** Math.floor(Math.log(Math.max(1, this.most)) / Math.log(1024));
    context.textAlign = "right";
    for (const mark of ticks(0, (this.most * 1.05) / unit, height / 48)) {
      const y = this.y(mark * unit, height);
      context.fillStyle = colours.grid;
      context.fillRect(LEFT, Math.round(y), width - LEFT - 12, 1);
      context.fillStyle = colours.soft;
      context.fillText(formatBytes(mark * unit), LEFT - 8, y);
    }
    context.textAlign = "center";
    for (const mark of ticks(0, this.high - this.low, width / 130)) {
      context.fillStyle = colours.soft;
      context.fillText(formatSeconds(mark * NS), this.x(mark + this.low, width), height - BOTTOM / 2);
    }
    context.textAlign = "left";
  }

  line(context, colour, values, width, height) {
    const { time } = this.memory;
    context.strokeStyle = colour;
    context.lineWidth = 1.6;
    context.lineJoin = "round";
    context.beginPath();
    let at = 0;
    while (at < time.length) {
      const pixel = Math.floor(this.x(time[at], width));
      let [least, most, last] = [values[at], values[at], values[at]];
      const first = at === 0;
      const place = this.x(time[at], width);
      while (at < time.length && Math.floor(this.x(time[at], width)) === pixel) {
        least = Math.min(least, values[at]);
        most = Math.max(most, values[at]);
        last = values[at];
        at += 1;
      }
      if (first) context.moveTo(place, this.y(least, height));
      else context.lineTo(place, this.y(least, height));
      if (most !== least) context.lineTo(place, this.y(most, height));
      if (last !== most) context.lineTo(place, this.y(last, height));
    }
    context.stroke();
  }

  peak(context, colours, width, height) {
    const { peak_ns: when, peak_bytes: bytes } = this.memory;
    if (!bytes) return;
    const x = Math.min(width - 12, Math.max(LEFT, this.x(when, width)));
    const y = this.y(bytes, height);
    context.beginPath();
    context.arc(x, y, 4, 0, 2 * Math.PI);
    context.fillStyle = colours.ink;
    context.fill();
    const right = x > width - 180;
    context.textAlign = right ? "right" : "left";
    context.fillText(`peak ${formatBytes(bytes)}`, x + (right ? -9 : 9), Math.max(TOP, y - 2));
    context.textAlign = "left";
  }

  point(event) {
    this.at = -1;
    if (event) {
      const [x, y] = this.surface.place(event);
      const { time } = this.memory;
      const wanted = this.low + ((x - LEFT) / (this.surface.width - LEFT - 12)) * (this.high - this.low);
      let [low, high] = [0, time.length - 1];
      while (low < high) {
        const middle = (low + high) >> 1;
        if (time[middle] < wanted) low = middle + 1;
        else high = middle;
      }
      this.at = low;
      const rows = this.series.map((name) => [name, formatBytes(this.memory[name][low])]);
      this.tooltip.show(x, y, formatSeconds((time[low] - this.low) * NS), "", rows);
    } else this.tooltip.hide();
    this.surface.redraw();
  }

  // Which line is which.
  legend() {
    return make("div", { class: "legend" }, ...this.series.map((name) => {
      const patch = make("i", { class: `patch line-${name}` });
      return make("span", {}, patch, name);
    }));
  }
}

export class MemoryView {
  constructor(element, model, options = {}) {
    this.model = model;
    const { memory } = model.raw;
    const parts = make("div", { class: "below" });
    this.parts = parts;
    const ways = [];
    if (memory.alive.length) ways.push(["alive", "Alive at the peak"]);
    if (model.peakTree && model.peakTree.total[0] > 0) ways.push(["paths", "Call paths at the peak"]);
    const chart = memory.time.length ? new Chart(memory) : null;
    const said = [memory.peak_bytes ? `peak ${formatBytes(memory.peak_bytes)}` : "", memory.source].filter(Boolean);
    const bar = make("div", { class: "toolbar" });
    if (ways.length) bar.append(switcher("What was alive", ways, ways[0][0], (way) => this.show(way)).element);
    bar.append(make("span", { class: "said" }, said.join(" · ")));
    refill(element, chart?.element, chart?.legend(), bar, parts);
    this.options = options;
    if (ways.length) this.show(ways[0][0]);
  }

  show(way) {
    const place = make("div", { class: "view" });
    refill(this.parts, place);
    if (way === "paths") {
      this.tree = mountTree(place, this.model.peakTree, this.options);
      this.search = this.tree.search;
      return;
    }
    this.tree = null;
    this.search = null;
    this.showAlive(place);
  }

  showAlive(place) {
    const { alive } = this.model.raw.memory;
    const sum = alive.reduce((all, one) => all + one.bytes, 0);
    const side = make("aside", { class: "side", "aria-label": "Who made it" });
    const choose = (row) => {
      const stack = make("ol", { class: "stack" }, ...alive[row].stack.map((frame) =>
        make("li", {}, make("span", { title: this.model.place(frame) }, this.model.name(frame)), make("small", {}, ` ${this.model.shortPlace(frame)}`))));
      const figures = pairs([["bytes", formatBytes(alive[row].bytes)], ["count", formatCount(alive[row].count)]]);
      refill(side, make("h2", {}, alive[row].what), figures, make("h3", {}, "Made by"), stack);
    };
    const table = new Table({
      label: "Alive at the peak", count: alive.length, sort: "bytes", onSelect: choose,
      columns: [
        { key: "what", title: "what", least: 12, grow: 2, value: (row) => alive[row].what, text: (row) => alive[row].what },
        { key: "count", title: "count", least: 6, numeric: true, value: (row) => alive[row].count, text: (row) => formatCount(alive[row].count) },
        { key: "bytes", title: "bytes", least: 7, numeric: true, value: (row) => alive[row].bytes, text: (row) => formatBytes(alive[row].bytes), bar: (row) => alive[row].bytes / sum },
        { key: "owner", title: "made by", least: 10, grow: 2, value: (row) => this.owner(row), text: (row) => this.owner(row) },
      ],
    });
    refill(place, make("div", { class: "split" }, table.element, side));
    choose(table.rows[0]);
  }

  owner(row) {
    const { stack } = this.model.raw.memory.alive[row];
    return stack.length ? this.model.name(stack[stack.length - 1]) : "";
  }

  reset() {
    this.tree?.reset();
  }
}

export function mountMemory(element, model, options = {}) {
  return new MemoryView(element, model, options);
}
