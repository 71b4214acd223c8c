// The page: a heading, a tab for each thing that the profile has, and the keys that work everywhere.

import { mountAbout } from "./about.js";
import { decode } from "./data.js";
import { mountDiff } from "./diff.js";
import { choice, make, refill } from "./dom.js";
import { mountFlame } from "./flame.js";
import { mountFunctions } from "./functions.js";
import { mountLines } from "./lines.js";
import { mountMemory } from "./memory.js";
import { Model } from "./model.js";
import { mountTree } from "./tree_view.js";
import { formatRatio, formatSeconds } from "./units.js";

export class App {
  constructor(element, data) {
    this.models = data.profiles.map((profile) => new Model(profile, data.strings));
    this.model = this.models[0];
    this.header = make("header", { class: "top" });
    this.tabs = make("div", { class: "tabs", role: "tablist", "aria-label": "Views" });
    this.panels = make("main", { class: "panels" });
    this.title = data.title;
    refill(element, this.header, this.panels);
    document.addEventListener("keydown", (event) => this.key(event));
    this.show(this.model);
  }

  // What this profile has to show: a key, a name, and how it is mounted.
  views() {
    const { model } = this;
    const toTable = (frame) => this.open("functions").showFrame(frame);
    const toTree = (frame) => this.open("tree").showFrame(frame);
    const { raw } = model;
    const tree = model.tree && model.tree.total[0] > 0;
    const memory = raw.memory && (raw.memory.time.length || raw.memory.alive.length || raw.memory.at_peak);
    const functions = raw.functions || tree;
    return [
      tree && ["tree", "Call tree", (place) => mountTree(place, model.tree, { onOpen: toTable })],
      raw.spans && ["time", "Timeline", (place) => mountFlame(place, model, functions ? { onOpen: toTable } : {})],
      functions && ["functions", "Functions", (place) => mountFunctions(place, model, tree ? { onTree: toTree } : {})],
      (raw.lines.length || raw.bytecode.length) && ["lines", "Lines", (place) => mountLines(place, model)],
      memory && ["memory", "Memory", (place) => mountMemory(place, model)],
      this.models.length > 1 && ["diff", "Compare", (place) => mountDiff(place, this.models)],
      ["about", "About", (place) => mountAbout(place, model)],
    ].filter(Boolean);
  }

  show(model) {
    this.model = model;
    this.mounted = new Map();
    this.buttons = new Map();
    refill(this.panels);
    this.list = this.views();
    refill(this.tabs, ...this.list.map(([key, name]) => {
      const choose = () => this.open(key);
      const button = make("button", { type: "button", role: "tab", id: `tab-${key}`, "aria-controls": `panel-${key}`, onclick: choose }, name);
      if (key === "about" && model.raw.problems.length) {
        button.append(make("b", { class: "count" }, String(model.raw.problems.length)));
      }
      this.buttons.set(key, button);
      return button;
    }));
    this.tabs.onkeydown = (event) => this.tabKey(event);
    this.showHeader();
    const wanted = this.list.find(([key]) => key === this.active) ? this.active : this.list[0][0];
    this.open(wanted);
  }

  showHeader() {
    const { raw } = this.model;
    const said = [
      raw.how,
      raw.tool,
      raw.wall_s ? formatSeconds(raw.wall_s) : "",
      raw.steps ? `${raw.steps} steps` : "",
    ].filter(Boolean);
    const pick = this.models.length > 1
      ? choice("Profile", this.models.map((model, i) => [String(i), model.label]), String(this.models.indexOf(this.model)), (value) => this.show(this.models[Number(value)])).element
      : null;
    const cost = raw.cost
      ? make("span", { class: "badge", title: "profiled ÷ unprofiled, beside unprofiled ÷ unprofiled" }, `cost ${formatRatio(raw.cost.ratio.time_ratio)} · control ${formatRatio(raw.cost.control.time_ratio)}`)
      : null;
    const guessed = raw.estimated ? make("span", { class: "badge doubt", title: "the source knows callers, not which path led to them" }, "call paths estimated") : null;
    refill(
      this.header,
      make("div", { class: "title" }, make("h1", {}, this.title), make("span", { class: "said" }, said.join(" · ")), guessed, cost, make("span", { class: "spring" }), pick),
      this.tabs,
    );
  }

  // Show a view, making it when it is first asked for.
  open(key) {
    this.active = key;
    for (const [name, button] of this.buttons) {
      const on = name === key;
      button.setAttribute("aria-selected", String(on));
      button.tabIndex = on ? 0 : -1;
    }
    for (const panel of this.panels.children) panel.hidden = panel.id !== `panel-${key}`;
    if (!this.mounted.has(key)) {
      const panel = make("section", { class: "view", role: "tabpanel", id: `panel-${key}`, "aria-labelledby": `tab-${key}` });
      this.panels.append(panel);
      const [, , mount] = this.list.find(([name]) => name === key);
      this.mounted.set(key, mount(panel));
    }
    return this.mounted.get(key);
  }

  tabKey(event) {
    const keys = this.list.map(([key]) => key);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = keys[(keys.indexOf(this.active) + step + keys.length) % keys.length];
    this.open(next);
    this.buttons.get(next).focus();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const view = this.mounted.get(this.active);
    const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
    if (event.key === "/" && !typing && view?.search) {
      event.preventDefault();
      view.search.focus();
      view.search.select();
    }
    if (event.key === "Escape") {
      if (event.target instanceof HTMLInputElement) event.target.blur();
      view?.reset?.();
    }
  }
}

export async function start() {
  const element = document.getElementById("app");
  try {
    const text = document.getElementById("profile-data").textContent;
    const data = await decode(text);
    performance.mark("torchstone-read");
    const app = new App(element, data);
    performance.mark("torchstone-mounted");
    // Told after the browser has painted, for whoever measures how long it took.
    requestAnimationFrame(() => setTimeout(() => performance.mark("torchstone-painted")));
    return app;
  } catch (error) {
    const sentence = "This profile could not be read. A browser of 2023 or newer is needed.";
    refill(element, make("p", { class: "failed" }, `${sentence} (${error.message})`));
    return null;
  }
}
