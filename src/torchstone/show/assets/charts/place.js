// The address of the page: what is zoomed to, which series are hidden, and where links lead.

const FIRST_DATE = 1e8; // smaller numbers are not times of runs
const FROM = "from";
const TO = "to";
const HIDE = "hide";

// An address that only leads somewhere; nothing where it could do more.
export function safeHref(href) {
  let url;
  try {
    url = new URL(href, document.baseURI);
  } catch {
    return "";
  }
  return ["http:", "https:", "file:"].includes(url.protocol) ? url.href : "";
}

export function open(href, apart = false) {
  if (apart) window.open(href, "_blank", "noopener");
  else if (document.dispatchEvent(new CustomEvent("torchstone:go", { cancelable: true, detail: href }))) location.assign(href);
}

// UTC seconds for people and for the server: `2026-11-16T05:54:00Z`.
export function written(moment) {
  return moment < FIRST_DATE ? String(moment) : `${new Date(moment * 1000).toISOString().slice(0, 19)}Z`;
}

// UTC seconds in a tooltip: `2026-11-16 05:54 UTC`.
export function told(moment) {
  if (moment < FIRST_DATE) return String(moment);
  return `${new Date(moment * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC`;
}

export function zoomed(from, to) {
  const url = new URL(location.href);
  url.searchParams.set(FROM, written(from));
  url.searchParams.set(TO, written(to));
  return url.href;
}

export function unzoomed() {
  const url = new URL(location.href);
  url.searchParams.delete(FROM);
  url.searchParams.delete(TO);
  return url.href;
}

export function isZoomed() {
  const { searchParams } = new URL(location.href);
  return searchParams.has(FROM) || searchParams.has(TO);
}

export function hiddenNames() {
  return new Set(new URL(location.href).searchParams.getAll(HIDE));
}

export function rememberHidden(names) {
  const url = new URL(location.href);
  url.searchParams.delete(HIDE);
  for (const name of names) url.searchParams.append(HIDE, name);
  history.replaceState(history.state, "", url.href);
}
