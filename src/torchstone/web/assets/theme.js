// Light, dark, or as the system has it. Read before the page is painted, so that nothing flashes.
"use strict";
{
  const KEY = "torchstone-theme";
  const WORDS = { "": "as the system has them", light: "light", dark: "dark" };

  const stored = () => {
    try {
      return localStorage.getItem(KEY) ?? "";
    } catch {
      return ""; // storage is off: the choice lasts as long as the page
    }
  };

  const apply = (theme) => {
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
  };

  apply(stored());

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    if (!button) return;
    let theme = stored();
    const tell = () => button.setAttribute("aria-label", `Colours: ${WORDS[theme] ?? WORDS[""]}`);
    button.hidden = false;
    tell();
    button.addEventListener("click", () => {
      // The other one, then the system's own by name, then whatever the system has.
      const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
      const other = system === "dark" ? "light" : "dark";
      theme = theme === "" ? other : theme === other ? system : "";
      apply(theme);
      tell();
      try {
        localStorage.setItem(KEY, theme);
      } catch {
        // as above
      }
    });
  });
}
