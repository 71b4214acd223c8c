// Icicle and sunburst of one tree, with what is needed to find one's way in them.

import { coloursOf, palette } from "./colour.js";
import { choice, isStill, make, onScheme, pairs, refill, searchBox, switcher } from "./dom.js";
import { Icicle, ROW } from "./icicle.js";
import { Sunburst } from "./sunburst.js";
import { Surface, Tooltip } from "./surface.js";
import { formatCount, formatShare, formatter, shareInterval, unitWord } from "./units.js";

const DEPTHS = [["3", "3"], ["5", "5"], ["10", "10"], ["15", "15"], ["20", "20"], ["all", "all"]];
const CUTOFFS = [["0.01", "1/100"], ["0.001", "1/1000"], ["0", "none"]];
const USUAL = { depth: "all", cutoff: "0.001" };
const ZOOM_MS = 160;
const DONE = 1;
const TOP = 15;

export class TreeView {
  // `options`: `paint(node, colours)` and `figures(node)` replace the usual ones, `legend` too;
  // `onOpen(frame)` is offered as a button; `actions` stand in the toolbar.
  constructor(element, tree, options = {}) {
    this.tree = tree;
    this.model = tree.model;
    this.options = options;
    this.format = formatter(tree.unit);
    [this.base, this.zoomed, this.selected, this.hovered] = [0, 0, -1, -1];
    this.levels = Infinity;
    this.cutoff = Number(USUAL.cutoff);
    this.matches = null;
    this.frameWindow = this.windowOf(0);
    this.anchor = 0;
    this.by = "group";
    this.painters = { icicle: new Icicle(this), sunburst: new Sunburst(this) };
    this.painter = this.painters.icicle;
    this.build(element);
    this.recolour();
    onScheme(element, () => this.recolour());
    this.changed();
  }

  build(element) {
    this.surface = new Surface(
      { role: "application", "aria-roledescription": "icicle", "aria-label": this.describe() },
      (context, width, height, scrolled) => {
        this.surface.setExtent(this.painter.extent(width));
        this.painter.draw(context, width, height, scrolled);
      },
    );
    this.tooltip = new Tooltip();
    this.live = make("p", { class: "unseen", "aria-live": "polite" });
    this.crumbs = make("nav", { class: "crumbs", "aria-label": "Zoomed to" });
    this.legend = make("div", { class: "legend" });
    this.side = make("aside", { class: "side", "aria-label": "Selection" });
    this.found = make("output", { class: "found" });
    this.search = searchBox("Search ( / )", (text) => this.setSearch(text));
    this.stage = make("div", { class: "stage" }, this.surface.element, this.tooltip.element);
    const hint = "Click to zoom, arrows to walk, Enter to zoom in, Esc to reset.";
    refill(
      element,
      this.toolbar(),
      this.crumbs,
      make("div", { class: "split" }, this.stage, this.side),
      make("div", { class: "foot" }, this.legend, make("span", { class: "hint" }, hint)),
      this.live,
    );
    this.listen();
  }

  describe() {
    return `Call paths by ${unitWord(this.tree.unit)}; arrow keys walk, Enter zooms, Escape resets`;
  }

  toolbar() {
    const style = [["icicle", "Icicle"], ["sunburst", "Sunburst"]];
    this.style = switcher("Style", style, "icicle", (name) => this.setStyle(name));
    const depth = choice("Depth", DEPTHS, USUAL.depth, (value) => {
      this.levels = value === "all" ? Infinity : Number(value);
      this.changed();
    });
    const cutoff = choice("Cutoff", CUTOFFS, USUAL.cutoff, (value) => {
      this.cutoff = Number(value);
      this.changed();
    });
    const bar = make("div", { class: "toolbar" }, this.style.element);
    if (this.tree.threads.length) bar.append(this.threadChoice());
    bar.append(depth.element, cutoff.element);
    if (!this.options.paint) {
      const ways = [["group", "module"], ["kind", "kind"]];
      bar.append(choice("Colour", ways, this.by, (by) => this.recolour((this.by = by))).element);
    }
    bar.append(...(this.options.actions ?? []), make("span", { class: "spring" }), this.found, this.search);
    bar.append(make("button", { type: "button", class: "reset", onclick: () => this.reset() }, "Reset"));
    return bar;
  }

  threadChoice() {
    const options = this.tree.threads.map((thread, i) => [String(i + 1), this.model.threadName(thread)]);
    const pick = choice("Thread", [["0", "all"], ...options], "0", (value) => {
      this.base = Number(value);
      this.selected = -1;
      this.zoom(this.base);
    });
    this.thread = pick.select;
    return pick.element;
  }

  listen() {
    const canvas = this.surface.canvas;
    canvas.addEventListener("pointermove", (event) => this.point(event));
    canvas.addEventListener("pointerleave", () => this.unpoint());
    canvas.addEventListener("click", (event) => {
      const node = this.hit(event);
      if (node < 0) return;
      const middle = node === this.zoomed && node !== this.base;
      this.select(node);
      this.zoom(middle ? this.tree.parent[node] : node);
    });
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  hit(event) {
    const [x, y] = this.surface.place(event);
    return this.painter.hit(x, y, this.surface.width, this.surface.height, this.surface.scrolled);
  }

  point(event) {
    const node = this.hit(event);
    this.surface.canvas.classList.toggle("pointing", node >= 0);
    if (node !== this.hovered) {
      this.hovered = node;
      this.surface.redraw();
    }
    if (node < 0) return this.tooltip.hide();
    const box = this.stage.getBoundingClientRect();
    const place = this.place(node);
    this.tooltip.show(event.clientX - box.left, event.clientY - box.top, this.tree.name(node), place, this.figures(node));
  }

  unpoint() {
    this.hovered = -1;
    this.tooltip.hide();
    this.surface.redraw();
  }

  key(event) {
    const { tree } = this;
    const at = this.selected < 0 ? this.zoomed : this.selected;
    const family = tree.parent[at] >= 0 && at !== this.base ? [...tree.childrenOf(tree.parent[at])] : [at];
    const beside = (step) => family[family.indexOf(at) + step] ?? at;
    const moves = {
      ArrowDown: () => this.walk(this.selected < 0 ? at : tree.childrenOf(at)[0] ?? at),
      ArrowUp: () => this.walk(at === this.base ? at : tree.parent[at]),
      ArrowLeft: () => this.walk(beside(-1)),
      ArrowRight: () => this.walk(beside(1)),
      Home: () => this.walk(this.base),
      Enter: () => this.zoom(at),
      Backspace: () => this.zoom(this.zoomed === this.base ? this.base : tree.parent[this.zoomed]),
    };
    const move = moves[event.key];
    if (!move || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    move();
  }

  // Select by key, and see to it that the node can be seen.
  walk(node) {
    if (!this.tree.isUnder(node, this.zoomed)) this.zoom(node);
    this.select(node);
    const y = (this.tree.depth[node] - this.tree.depth[this.zoomed]) * ROW;
    const scroller = this.surface.element;
    if (y < scroller.scrollTop) scroller.scrollTop = y;
    if (y + ROW > scroller.scrollTop + this.surface.height) scroller.scrollTop = y + ROW - this.surface.height;
  }

  select(node) {
    this.selected = node;
    this.showSide();
    this.live.textContent = `${this.tree.name(node)}, ${this.noteOf(node)}`;
    this.surface.redraw();
  }

  windowOf(node) {
    const { start, total, depth } = this.tree;
    return { low: start[node], high: start[node] + total[node], depth: depth[node] };
  }

  zoom(node) {
    const from = this.frameWindow;
    const to = this.windowOf(node);
    this.zoomed = node;
    this.surface.element.scrollTop = 0;
    this.showCrumbs();
    this.changed();
    if (isStill()) return this.arrive(to);
    const began = performance.now();
    this.anchor = 0;
    const step = (now) => {
      if (this.zoomed !== node) return;
      const t = Math.min(DONE, (now - began) / ZOOM_MS);
      if (t >= DONE) return this.arrive(to);
      const eased = 1 - (1 - t) ** 3;
      const between = (a, b) => a + (b - a) * eased;
      this.frameWindow = {
        low: between(from.low, to.low),
        high: between(from.high, to.high),
        depth: between(from.depth, to.depth),
      };
      this.surface.paint();
      requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }

  arrive(to) {
    this.frameWindow = to;
    this.anchor = this.zoomed;
    this.surface.redraw();
  }

  reset() {
    this.search.value = "";
    this.base = 0;
    if (this.thread) this.thread.value = "0";
    this.selected = -1;
    this.setSearch("");
    this.zoom(0);
    this.showSide();
  }

  setStyle(name) {
    this.painter = this.painters[name];
    this.style.show(name);
    this.surface.canvas.setAttribute("aria-roledescription", name);
    this.surface.element.scrollTop = 0;
    this.changed();
  }

  setSearch(text) {
    this.query = text;
    this.matches = this.model.matches(text);
    this.changed();
  }

  // Choose the largest node of a frame, and mark all of its nodes.
  showFrame(frame) {
    this.base = 0;
    if (this.thread) this.thread.value = "0";
    const node = this.tree.largest(frame);
    this.search.value = this.model.name(frame);
    this.query = this.search.value;
    this.matches = new Uint8Array(this.model.count);
    this.matches[frame] = 1;
    if (node >= 0) {
      this.zoom(0);
      this.select(node);
    }
    this.changed();
  }

  recolour() {
    this.colours = palette();
    if (!this.options.paint) this.colouring = coloursOf(this.model, this.by, this.tree.byFrame.own);
    const entries = this.options.legend?.(this.colours) ??
      this.colouring.legend.map(([name, number]) => [name, this.colours.fills[number]]);
    refill(this.legend, ...entries.map(([name, colour]) => {
      const patch = make("i", { class: "patch" });
      patch.style.background = colour;
      return make("span", {}, patch, name);
    }));
    this.surface.redraw();
  }

  paintOf(node) {
    const { colours } = this;
    const frame = this.tree.frame[node];
    if (this.matches) {
      const match = frame >= 0 && this.matches[frame] === 1;
      return match ? { fill: colours.match, ink: colours.ink } : { fill: colours.dim, ink: colours.dimInk };
    }
    if (this.options.paint) return { fill: this.options.paint(node, colours), ink: colours.ink };
    if (frame < 0) return { fill: colours.head, ink: colours.ink };
    return { fill: colours.fills[this.colouring.of[frame]], ink: colours.ink };
  }

  share(value) {
    return value / this.tree.total[this.base];
  }

  noteOf(node) {
    if (this.options.note) return this.options.note(node);
    return `${this.format(this.tree.total[node])} · ${formatShare(this.share(this.tree.total[node]))}`;
  }

  place(node) {
    return this.tree.frame[node] >= 0 ? this.model.place(this.tree.frame[node]) : "";
  }

  figures(node) {
    if (this.options.figures) return this.options.figures(node);
    const { tree } = this;
    const said = (value) => {
      const samples = this.model.samplesIn(tree, tree.total[this.base]);
      const share = this.share(value);
      if (!samples) return `${this.format(value)} · ${formatShare(share)}`;
      const [low, high] = shareInterval(share * samples, samples);
      return `${this.format(value)} · ${formatShare(share)} (95 %: ${formatShare(low)} – ${formatShare(high)})`;
    };
    const rows = [["total", said(tree.total[node])], ["own", said(tree.own[node])]];
    if (tree.calls && tree.frame[node] >= 0) rows.push(["calls", formatCount(tree.calls[node])]);
    return rows;
  }

  changed() {
    if (this.matches) {
      const sum = this.tree.matched(this.base, this.matches);
      const count = this.matches.reduce((all, one) => all + one, 0);
      this.found.textContent = `${count} found · ${formatShare(this.share(sum))}`;
    } else this.found.textContent = "";
    if (!this.crumbs.firstChild) this.showCrumbs();
    if (!this.side.firstChild) this.showSide();
    this.surface.redraw();
  }

  showCrumbs() {
    const path = this.tree.path(this.zoomed, this.base);
    refill(this.crumbs, ...path.map((node) => {
      const here = node === this.zoomed;
      const go = () => this.zoom(node);
      const name = this.tree.name(node);
      return make("button", { type: "button", onclick: go, title: name, "aria-current": here ? "true" : null }, name);
    }));
    this.crumbs.scrollLeft = this.crumbs.scrollWidth;
  }

  showSide() {
    const node = this.selected < 0 ? this.base : this.selected;
    const frame = this.tree.frame[node];
    const stack = make("ol", { class: "stack" });
    for (const at of this.tree.path(node, this.base)) {
      const choose = () => this.walk(at);
      const name = this.tree.name(at);
      stack.append(make("li", {}, make("button", { type: "button", onclick: choose, title: this.place(at) }, name)));
    }
    const kind = frame >= 0 ? make("span", { class: "kind" }, this.model.kind(frame)) : null;
    const open = frame >= 0 && this.options.onOpen
      ? make("button", { type: "button", onclick: () => this.options.onOpen(frame) }, "Show in the function table")
      : null;
    const whole = this.selected < 0 && !this.options.paint;
    refill(
      this.side,
      make("h2", {}, this.tree.name(node)),
      make("p", { class: "place" }, this.place(node)),
      kind,
      pairs(this.figures(node)),
      open,
      make("h3", {}, whole ? "Most by itself" : "Call stack"),
      whole ? this.topList() : stack,
    );
  }

  // The functions that took most by themselves.
  topList() {
    const { own } = this.tree.byFrame;
    // Sort the weights, not the frames: typed arrays sort fast.
    const least = own.slice().sort()[Math.max(0, own.length - TOP)];
    const frames = [];
    own.forEach((weight, frame) => weight > 0 && weight >= least && frames.push(frame));
    frames.sort((a, b) => own[b] - own[a]);
    return make("ul", { class: "related" }, ...frames.slice(0, TOP).map((frame) => {
      const name = this.model.boxName(frame);
      const show = () => this.showFrame(frame);
      const amount = make("span", { class: "amount" }, formatShare(own[frame] / this.tree.total[0]));
      return make("li", {}, make("button", { type: "button", onclick: show, title: this.model.place(frame) }, name), amount);
    }));
  }
}

export function mountTree(element, tree, options = {}) {
  return new TreeView(element, tree, options);
}
