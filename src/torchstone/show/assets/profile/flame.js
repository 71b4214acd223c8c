// The flame graph over time: threads as lanes, calls beneath their callers, from left to right.

import { coloursOf, palette } from "./colour.js";
import { choice, make, onScheme, pairs, refill, searchBox } from "./dom.js";
import { AXIS, FlamePainter, HEAD, NS, ROW } from "./flame_paint.js";
import { Lanes } from "./lanes.js";
import { Surface, Tooltip } from "./surface.js";
import { formatCount, formatSeconds, formatShare } from "./units.js";

const GAP = 10;
const SHORTEST_NS = 2;
const DRAG = 4;
const WHEEL = 0.0016;
const PAN = 0.12;
const ZOOM = 1.4;

export class FlameView {
  constructor(element, model, options = {}) {
    this.model = model;
    this.options = options;
    this.spans = model.raw.spans;
    this.lanes = model.once("lanes", () => new Lanes(this.spans, model));
    [this.low, this.high] = [this.lanes.low, this.lanes.high];
    this.shown = "all";
    this.selected = -1;
    this.hovered = -1;
    this.matched = null;
    this.by = "group";
    this.painter = new FlamePainter(this);
    this.build(element);
    this.recolour();
    onScheme(element, () => this.recolour());
    this.placeLanes();
    this.showSide();
  }

  build(element) {
    const words = "Calls over time; arrow keys walk, plus and minus zoom, Escape resets";
    this.surface = new Surface(
      { role: "application", "aria-roledescription": "flame graph", "aria-label": words },
      (...given) => this.painter.draw(...given),
    );
    this.tooltip = new Tooltip();
    this.live = make("p", { class: "unseen", "aria-live": "polite" });
    this.side = make("aside", { class: "side", "aria-label": "Selection" });
    this.found = make("output", { class: "found" });
    this.search = searchBox("Search ( / )", (text) => this.setSearch(text));
    this.legend = make("div", { class: "legend" });
    this.stage = make("div", { class: "stage" }, this.surface.element, this.tooltip.element);
    const hint = "Wheel or + − zooms, drag pans, double click fills the view, arrows walk, Esc resets.";
    refill(
      element,
      this.toolbar(),
      make("div", { class: "split" }, this.stage, this.side),
      make("div", { class: "foot" }, this.legend, make("span", { class: "hint" }, hint)),
      this.live,
    );
    this.listen();
  }

  toolbar() {
    const bar = make("div", { class: "toolbar" });
    if (this.lanes.threads.length > 1) {
      const names = this.lanes.threads.map((lane) => [String(lane.thread), this.model.threadName(lane.thread)]);
      const pick = choice("Thread", [["all", "all"], ...names], "all", (value) => {
        this.shown = value;
        this.placeLanes();
      });
      this.thread = pick.select;
      bar.append(pick.element);
    }
    const ways = [["group", "module"], ["kind", "kind"]];
    bar.append(choice("Colour", ways, this.by, (by) => this.recolour((this.by = by))).element);
    const count = `${formatCount(this.lanes.count)} spans`;
    bar.append(make("span", { class: "said" }, count), make("span", { class: "spring" }), this.found, this.search);
    bar.append(make("button", { type: "button", class: "reset", onclick: () => this.reset() }, "Reset"));
    return bar;
  }

  listen() {
    const canvas = this.surface.canvas;
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.grab(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.release(event));
    canvas.addEventListener("pointerleave", () => this.unpoint());
    canvas.addEventListener("dblclick", () => this.fill(this.selected));
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  placeLanes() {
    this.visible = this.lanes.threads.filter((lane) => this.shown === "all" || String(lane.thread) === this.shown);
    let y = AXIS;
    this.tops = this.visible.map((lane) => {
      const top = y;
      y += HEAD + lane.rows.length * ROW + GAP;
      return top;
    });
    this.extent = y;
    this.surface.redraw();
  }

  recolour() {
    this.colours = palette();
    const weights = new Float64Array(this.model.count);
    const { frames } = this.spans;
    for (let i = 0; i < frames.length; i += 1) weights[frames[i]] += Math.max(0, this.lanes.own[i]);
    this.colouring = coloursOf(this.model, this.by, weights);
    refill(this.legend, ...this.colouring.legend.map(([name, number]) => {
      const patch = make("i", { class: "patch" });
      patch.style.background = this.colours.fills[number];
      return make("span", {}, patch, name);
    }));
    this.surface.redraw();
  }

  rowOf(span) {
    const lane = this.visible.findIndex((one) => one.thread === this.spans.threads[span]);
    return lane < 0 ? -1 : this.tops[lane] + HEAD + this.lanes.depth[span] * ROW;
  }

  hit(event) {
    const [x, y] = this.surface.place(event);
    const down = y + this.surface.scrolled;
    if (y < AXIS) return -1;
    const time = this.low + x / this.scale;
    for (let i = this.visible.length - 1; i >= 0; i -= 1) {
      const row = Math.floor((down - this.tops[i] - HEAD) / ROW);
      if (row < 0) continue;
      const rows = this.visible[i].rows;
      return row < rows.length ? this.lanes.at(rows[row], time, 0.5 / this.scale) : -1;
    }
    return -1;
  }

  setWindow(low, high) {
    const whole = this.lanes.high - this.lanes.low;
    const size = Math.min(whole, Math.max(SHORTEST_NS, high - low));
    this.low = Math.min(Math.max(this.lanes.low, low), this.lanes.high - size);
    this.high = this.low + size;
    this.surface.redraw();
  }

  zoomAt(time, factor) {
    this.setWindow(time - (time - this.low) * factor, time + (this.high - time) * factor);
  }

  pan(share) {
    const by = (this.high - this.low) * share;
    this.setWindow(this.low + by, this.high + by);
  }

  wheel(event) {
    event.preventDefault();
    const [x] = this.surface.place(event);
    const across = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      this.pan(across / this.surface.width);
    } else this.zoomAt(this.low + x / this.scale, Math.exp(event.deltaY * WHEEL));
  }

  grab(event) {
    if (event.button !== 0) return;
    this.drag = { x: event.clientX, y: event.clientY, low: this.low, high: this.high, top: this.surface.scrolled, moved: false };
    this.surface.canvas.setPointerCapture(event.pointerId);
  }

  move(event) {
    if (!this.drag) return this.point(event);
    const [across, down] = [event.clientX - this.drag.x, event.clientY - this.drag.y];
    if (!this.drag.moved && Math.hypot(across, down) < DRAG) return undefined;
    this.drag.moved = true;
    this.tooltip.hide();
    this.setWindow(this.drag.low - across / this.scale, this.drag.high - across / this.scale);
    this.surface.element.scrollTop = this.drag.top - down;
    return undefined;
  }

  release(event) {
    const clicked = this.drag && !this.drag.moved;
    this.drag = null;
    if (clicked) this.select(this.hit(event));
  }

  point(event) {
    const span = this.hit(event);
    if (span !== this.hovered) {
      this.hovered = span;
      this.surface.redraw();
    }
    if (span < 0) return this.tooltip.hide();
    const box = this.stage.getBoundingClientRect();
    const frame = this.spans.frames[span];
    return this.tooltip.show(
      event.clientX - box.left,
      event.clientY - box.top,
      this.model.name(frame),
      this.model.place(frame),
      this.figures(span),
    );
  }

  unpoint() {
    this.hovered = -1;
    this.tooltip.hide();
    this.surface.redraw();
  }

  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const middle = (this.low + this.high) / 2;
    const at = this.selected;
    const beside = (step) => this.beside(step);
    const moves = {
      ArrowLeft: () => (at < 0 ? this.pan(-PAN) : this.walk(beside(-1))),
      ArrowRight: () => (at < 0 ? this.pan(PAN) : this.walk(beside(1))),
      ArrowUp: () => at >= 0 && this.walk(this.lanes.parent[at]),
      ArrowDown: () => this.walk(at < 0 ? this.firstSeen() : this.lanes.firstChild(at)),
      "+": () => this.zoomAt(middle, 1 / ZOOM),
      "=": () => this.zoomAt(middle, 1 / ZOOM),
      "-": () => this.zoomAt(middle, ZOOM),
      w: () => this.zoomAt(middle, 1 / ZOOM),
      s: () => this.zoomAt(middle, ZOOM),
      a: () => this.pan(-PAN),
      d: () => this.pan(PAN),
      Home: () => this.setWindow(this.lanes.low, this.lanes.high),
      Enter: () => this.fill(at),
    };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    move();
  }

  firstSeen() {
    const row = this.visible[0]?.rows[0];
    return row ? this.lanes.at(row, (this.low + this.high) / 2, this.high - this.low) : -1;
  }

  beside(step) {
    const span = this.selected;
    const lane = this.lanes.threads.find((one) => one.thread === this.spans.threads[span]);
    const [from, to] = lane.rows[this.lanes.depth[span]];
    const place = this.lanes.place[span] + step;
    return place >= from && place < to ? this.lanes.order[place] : span;
  }

  // Select by key, and see to it that the span can be seen.
  walk(span) {
    if (span < 0) return;
    const [start, end] = [this.spans.start[span], this.lanes.end(span)];
    if (end < this.low || start > this.high) {
      const half = (this.high - this.low) / 2;
      this.setWindow((start + end) / 2 - half, (start + end) / 2 + half);
    }
    const y = this.rowOf(span);
    const scroller = this.surface.element;
    if (y >= 0 && y - AXIS < scroller.scrollTop) scroller.scrollTop = y - AXIS;
    if (y + ROW > scroller.scrollTop + this.surface.height) scroller.scrollTop = y + ROW - this.surface.height;
    this.select(span);
  }

  fill(span) {
    if (span < 0) return;
    const margin = this.spans.duration[span] * 0.02;
    this.setWindow(this.spans.start[span] - margin, this.lanes.end(span) + margin);
  }

  select(span) {
    this.selected = span;
    this.showSide();
    if (span >= 0) {
      const name = this.model.name(this.spans.frames[span]);
      this.live.textContent = `${name}, ${formatSeconds(this.spans.duration[span] * NS)}`;
    }
    this.surface.redraw();
  }

  setSearch(text) {
    const matches = this.model.matches(text);
    this.matched = matches ? this.lanes.only(matches) : null;
    this.found.textContent = this.matched ? `${formatCount(this.matched.order.length)} spans` : "";
    this.surface.redraw();
  }

  reset() {
    this.search.value = "";
    this.setSearch("");
    this.shown = "all";
    if (this.thread) this.thread.value = "all";
    this.placeLanes();
    this.select(-1);
    this.setWindow(this.lanes.low, this.lanes.high);
  }

  figures(span) {
    const whole = this.lanes.high - this.lanes.low;
    const said = (ns) => `${formatSeconds(ns * NS)} · ${formatShare(ns / whole)}`;
    return [
      ["duration", said(this.spans.duration[span])],
      ["own", said(Math.max(0, this.lanes.own[span]))],
      ["start", formatSeconds((this.spans.start[span] - this.lanes.low) * NS)],
    ];
  }

  showSide() {
    const span = this.selected;
    if (span < 0) {
      const seen = pairs([
        ["length", formatSeconds((this.lanes.high - this.lanes.low) * NS)],
        ["spans", formatCount(this.lanes.count)],
        ["threads", formatCount(this.lanes.threads.length)],
      ]);
      refill(this.side, make("h2", {}, "Over time"), seen, make("p", { class: "hint" }, "Click a span to see more."));
      return;
    }
    const frame = this.spans.frames[span];
    const all = this.lanes.sums(frame);
    const stack = make("ol", { class: "stack" });
    for (const at of this.lanes.path(span)) {
      const name = this.model.name(this.spans.frames[at]);
      stack.append(make("li", {}, make("button", { type: "button", onclick: () => this.walk(at) }, name)));
    }
    const open = this.options.onOpen
      ? make("button", { type: "button", onclick: () => this.options.onOpen(frame) }, "Show in the function table")
      : null;
    refill(
      this.side,
      make("h2", {}, this.model.name(frame)),
      make("p", { class: "place" }, this.model.place(frame)),
      make("span", { class: "kind" }, this.model.kind(frame)),
      pairs([...this.figures(span), ["thread", this.model.threadName(this.spans.threads[span])]]),
      make("h3", {}, "All of its spans"),
      pairs([["spans", formatCount(all.count)], ["own", formatSeconds(all.own * NS)], ["longest", formatSeconds(all.longest * NS)]]),
      open,
      make("h3", {}, "Call stack"),
      stack,
    );
  }
}

export function mountFlame(element, model, options = {}) {
  return new FlameView(element, model, options);
}
