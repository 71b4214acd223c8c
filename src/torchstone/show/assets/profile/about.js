// What the profile is, what taking it cost, what is wrong with it, and what was counted.

import { make, pairs, refill } from "./dom.js";
import { formatBytes, formatCount, formatRatio, formatSeconds } from "./units.js";

function card(title, ...children) {
  return make("section", { class: "card" }, make("h2", {}, title), ...children);
}

function list(texts, kind) {
  return make("ul", { class: kind }, ...texts.map((text) => make("li", {}, text)));
}

function overlap(a, b) {
  return a[0] <= b[1] && b[0] <= a[1];
}

export function costWords(cost) {
  if (!cost) return "";
  const apart = !overlap(cost.ratio.interval, cost.control.interval);
  return apart ? "" : "The two cannot be told apart.";
}

function costCard(cost) {
  if (!cost) return null;
  return card(
    "What profiling cost",
    pairs([
      ["profiled ÷ unprofiled", formatRatio(cost.ratio.time_ratio, cost.ratio.interval)],
      ["unprofiled ÷ unprofiled", formatRatio(cost.control.time_ratio, cost.control.interval)],
      ["unprofiled", formatSeconds(cost.unprofiled_s)],
      ["profiled", formatSeconds(cost.profiled_s)],
      ["written", cost.footprint_bytes ? formatBytes(cost.footprint_bytes) : ""],
      ["more memory", cost.memory_bytes ? formatBytes(cost.memory_bytes) : ""],
    ]),
    make("p", { class: "hint" }, `Interleaved turns; the second line is what this machine makes of nothing. ${costWords(cost)}`),
  );
}

function counterValue(counter) {
  if (counter.value === null) return make("span", { class: "nothing" }, counter.note || "not measurable here");
  const text = counter.unit === "bytes" ? formatBytes(counter.value)
    : counter.unit === "seconds" ? formatSeconds(counter.value)
    : `${formatCount(counter.value)} ${counter.unit}`.trim();
  return make("span", {}, counter.note ? `${text} (${counter.note})` : text);
}

export function mountAbout(element, model) {
  const { raw } = model;
  const { sampling } = raw;
  const every = sampling?.interval_s > 0 ? ` every ${formatSeconds(sampling.interval_s)}` : "";
  const taken = sampling
    ? `${formatCount(sampling.samples)}${every}, ${sampling.clock} clock, ${formatCount(sampling.lost)} lost`
    : "";
  const cards = [
    raw.problems.length ? card("Problems", list(raw.problems, "problems")) : null,
    card("This profile", pairs([
      ["label", raw.label],
      ["how", raw.how],
      ["tool", raw.tool],
      ["taken", raw.created],
      ["wall time", raw.wall_s ? formatSeconds(raw.wall_s) : ""],
      ["steps", raw.steps ? formatCount(raw.steps) : ""],
      ["samples", taken],
      ["call paths", raw.estimated ? "estimated: the source knows callers, not which path led to them" : ""],
      ["command", raw.command.join(" ")],
      ["from", raw.origin === "here" ? "" : raw.origin],
      ["machine", raw.machine],
      ["torchstone", raw.version],
      ["id", raw.id],
    ])),
    costCard(raw.cost),
    raw.counters.length ? card("Counters", pairs(raw.counters.map((counter) => [counter.name, counterValue(counter)]))) : null,
    raw.facts.length ? card("Facts", pairs(raw.facts)) : null,
    raw.notes.length ? card("Notes", list(raw.notes, "notes")) : null,
    model.threads.length > 1 ? card("Threads", list(model.threads.map((_, i) => model.threadName(i)), "notes")) : null,
  ];
  refill(element, make("div", { class: "cards" }, ...cards.filter(Boolean)));
  return {};
}
