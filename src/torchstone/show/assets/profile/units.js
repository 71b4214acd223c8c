// Numbers for people.

const TIMES = [
  [1, "s"],
  [1e-3, "ms"],
  [1e-6, "µs"],
  [1e-9, "ns"],
];
const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const MISSING = "–";
// The 97.5 % point of the normal distribution, for intervals of 95 %.
const Z = 1.959963984540054;

function digits(value, count = 3) {
  const rounded = Number(value.toPrecision(count));
  const exponent = rounded === 0 ? 0 : Math.floor(Math.log10(Math.abs(rounded)) + 1e-12);
  return rounded.toFixed(Math.max(0, count - 1 - exponent));
}

export function formatSeconds(seconds) {
  if (!Number.isFinite(seconds)) return MISSING;
  if (seconds === 0) return "0 s";
  const size = Math.abs(Number(seconds.toPrecision(3)));
  if (size < 1e-12 || size >= 1e6) return `${seconds.toExponential(1)} s`;
  const [scale, unit] = TIMES.find(([least]) => size >= least) ?? TIMES[TIMES.length - 1];
  return `${digits(seconds / scale)} ${unit}`;
}

export function formatBytes(bytes) {
  if (!Number.isFinite(bytes)) return MISSING;
  let size = bytes;
  let unit = 0;
  while (Math.abs(size) >= 999.5 && unit < BYTES.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return unit === 0 ? `${size.toFixed(0)} B` : `${digits(size)} ${BYTES[unit]}`;
}

export function formatCount(value) {
  if (!Number.isFinite(value)) return MISSING;
  const whole = Math.abs(value - Math.round(value)) < 1e-9;
  return value.toLocaleString("en", { maximumFractionDigits: whole ? 0 : 1 });
}

export function formatShare(share) {
  if (!Number.isFinite(share)) return MISSING;
  const percent = share * 100;
  const size = Math.abs(Number(percent.toPrecision(2)));
  return `${percent.toFixed(size >= 10 ? 1 : size >= 0.1 || size === 0 ? 2 : 3)} %`;
}

export function formatSigned(text, value) {
  return value > 0 ? `+${text}` : text.replace(/^-/, "−");
}

export function formatRatio(ratio, interval) {
  if (!Number.isFinite(ratio)) return MISSING;
  const said = `${ratio.toFixed(2)}×`;
  return interval ? `${said} (${interval[0]?.toFixed(2)}–${interval[1]?.toFixed(2)})` : said;
}

// How a weight of this unit is written.
export function formatter(unit) {
  if (unit === "seconds") return formatSeconds;
  if (unit === "bytes") return formatBytes;
  return formatCount;
}

// What the weights of a unit are called in a sentence.
export function unitWord(unit) {
  return { seconds: "time", bytes: "memory", samples: "samples", calls: "calls" }[unit] ?? unit;
}

// Wilson's interval of a share of independent samples, at 95 %.
export function shareInterval(part, whole) {
  if (!(whole > 0)) return [0, 1];
  const share = Math.min(1, Math.max(0, part / whole));
  const widened = 1 + (Z * Z) / whole;
  const centre = (share + (Z * Z) / (2 * whole)) / widened;
  const spread = Math.sqrt((share * (1 - share)) / whole + (Z * Z) / (4 * whole * whole));
  const half = (Z / widened) * spread;
  return [Math.max(0, centre - half), Math.min(1, centre + half)];
}

// Round steps for an axis: about `count` of them between the ends.
export function ticks(low, high, count) {
  const raw = (high - low) / Math.max(1, count);
  if (!(raw > 0)) return [];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= raw) * power;
  const marks = [];
  for (let mark = Math.ceil(low / step) * step; mark <= high; mark += step) marks.push(mark);
  return marks;
}
