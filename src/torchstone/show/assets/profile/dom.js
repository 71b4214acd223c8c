// Elements without markup: every text goes in as text, so no name can become an element.

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function refill(element, ...children) {
  element.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
}

// A labelled select; `options` are [value, text].
export function choice(label, options, value, onchange) {
  const select = make("select", { onchange: () => onchange(select.value) });
  for (const [key, text] of options) select.append(make("option", { value: key }, text));
  select.value = String(value);
  return { element: make("label", { class: "field" }, make("span", {}, label), select), select };
}

export function searchBox(placeholder, oninput) {
  const input = make("input", {
    type: "search",
    class: "search",
    placeholder,
    "aria-label": placeholder,
    autocomplete: "off",
    spellcheck: "false",
    oninput: () => oninput(input.value),
  });
  return input;
}

// Buttons of which one is pressed; `options` are [value, text].
export function switcher(label, options, value, onchange) {
  const group = make("div", { class: "switch", role: "group", "aria-label": label });
  const show = (chosen) => {
    for (const button of group.children) {
      button.setAttribute("aria-pressed", String(button.dataset.value === chosen));
    }
  };
  for (const [key, text] of options) {
    const press = () => {
      show(key);
      onchange(key);
    };
    group.append(make("button", { type: "button", "data-value": key, onclick: press }, text));
  }
  show(value);
  return { element: group, show };
}

// Names and values, in two columns.
export function pairs(entries) {
  const list = make("dl", { class: "pairs" });
  for (const [name, value] of entries) {
    if (value === "" || value === null || value === undefined) continue;
    list.append(make("dt", {}, name), make("dd", {}, value));
  }
  return list;
}

export function later(work) {
  let waiting = 0;
  return () => {
    if (waiting) return;
    waiting = requestAnimationFrame(() => {
      waiting = 0;
      work();
    });
  };
}

export function isDark() {
  const { theme } = document.documentElement.dataset; // what a page around it chose
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

export function isStill() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

// Work whenever the colours of the system change, as long as the element is in the page.
export function onScheme(element, work) {
  const query = matchMedia("(prefers-color-scheme: dark)");
  const changed = () => {
    if (element.isConnected) work();
  };
  query.addEventListener("change", changed);
}
