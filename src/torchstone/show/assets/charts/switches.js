// The legend as switches. A name that is switched off is off in every chart of the page, and in the
// page's address, so that a link shows the same.

import { hiddenNames, rememberHidden } from "./place.js";

export function shownSeries(data) {
  return data.series.filter((one) => one.isShown);
}

export function mountSwitches(charts, changed) {
  const hidden = hiddenNames();
  const toggle = (name) => {
    if (!hidden.delete(name)) hidden.add(name);
    rememberHidden(hidden);
    apply(charts, hidden);
    changed();
  };
  for (const { svg } of charts) {
    const keys = [...svg.querySelectorAll(".chart-key")];
    keys.forEach((key, place) => mountSwitch(keys, place, toggle));
  }
  apply(charts, hidden);
}

// One stop for Tab a legend; arrows go on to the next name.
function mountSwitch(keys, place, toggle) {
  const key = keys[place];
  const { name = "" } = key.dataset;
  key.setAttribute("role", "switch");
  key.setAttribute("tabindex", place ? "-1" : "0");
  key.setAttribute("aria-label", name);
  key.addEventListener("click", () => toggle(name));
  key.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key] ?? 0;
    const next = keys[place + step];
    if (step && next) {
      key.setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus();
    }
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    toggle(name);
  });
}

function apply(charts, hidden) {
  for (const { svg, series } of charts) {
    const named = svg.querySelectorAll(".chart-key, .chart-series, .chart-spread");
    for (const element of named) {
      // A chart without a legend has no way to show its series again.
      const isOff = hidden.has(element.dataset.name) && series.length > 1;
      element.classList.toggle("chart-off", isOff);
      if (element.matches(".chart-key")) element.setAttribute("aria-checked", String(!isOff));
    }
    for (const one of series) one.isShown = !one.element.classList.contains("chart-off");
  }
}
