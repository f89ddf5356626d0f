// What all parts of the script use: elements, numbers, colours. Everything from records enters the page as
// text (`el` makes text nodes), so no record can add an element or run anything.

const data = JSON.parse(document.getElementById('data').textContent);
const root = document.documentElement;
root.classList.add('scripted');
const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];

/** An element with properties and children; texts become text nodes. */
function el(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === false) continue;
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else if (name === 'style') for (const [key, text] of Object.entries(value)) made.style.setProperty(key, text);
    else if (name in made && name !== 'role' && typeof value !== 'string') made[name] = value;
    else made.setAttribute(name === 'className' ? 'class' : name, value);
  }
  made.append(...children.flat(3).filter((child) => child || child === 0));
  return made;
}

// ---- numbers ----

/** Three significant digits: 1.42, 37.8, 1405. */
function num(v) {
  const a = Math.abs(v);
  if (!Number.isFinite(v)) return 'not a number';
  if (a === 0) return '0';
  if (a < 1e-3 || a >= 1e7) return v.toExponential(2).replace('e+', 'e');
  return v.toFixed(a >= 99.95 ? 0 : a >= 9.995 ? 1 : a >= 0.9995 ? 2 : 3);
}
const percent = (share) => {
  const p = share * 100;
  return `${p.toFixed(Math.abs(p) < 9.95 && p !== 0 ? 1 : 0)} %`;
};
const signed = (share) => {
  const p = Math.round(share * 1000) / 10;
  return p === 0 ? '0.0 %' : `${p > 0 ? '+' : ''}${p.toFixed(1)} %`;
};
const count = (n, noun) => `${n} ${noun}${n === 1 ? '' : 's'}`;
const known = (v) => typeof v === 'number' && Number.isFinite(v);
const median = (list) => {
  const s = [...list].sort((a, b) => a - b);
  const at = (s.length - 1) / 2;
  return s.length ? (s[Math.floor(at)] + s[Math.ceil(at)]) / 2 : undefined;
};
const counted = (better, v) => better === 'neither' && Number.isInteger(v) && Math.abs(v) < 1e6;
const shown = (better, v) => (counted(better, v) ? String(v) : num(v));

/** A place on an axis; sizes are binary: 4KiB. */
function tick(v, unit) {
  if (unit !== 'B') return v !== 0 && (Math.abs(v) < 1e-4 || Math.abs(v) >= 1e7) ? v.toExponential() : String(+v.toFixed(6));
  const power = Math.min(4, Math.max(0, Math.floor(Math.log2(Math.max(v, 1)) / 10)));
  return `${+(v / 1024 ** power).toFixed(1)}${['B', 'KiB', 'MiB', 'GiB', 'TiB'][power]}`;
}
const axisName = (unit) => ({ B: 'size', 'GB/s': 'bandwidth', ns: 'time', us: 'time', ms: 'time', s: 'time' }[unit] || unit);

// ---- colours ----

// viridis: lightness rises evenly, and it reads alike with any colour vision (matplotlib, CC0).
const VIRIDIS = [[68, 1, 84], [72, 36, 117], [65, 68, 135], [53, 95, 141], [42, 120, 142], [33, 145, 140],
  [34, 168, 132], [68, 191, 112], [122, 209, 81], [189, 223, 38], [253, 231, 37]];
// Differences, with a light middle (after ColorBrewer's RdBu, Apache-2.0).
const DIVERGING = [[5, 48, 97], [33, 102, 172], [67, 147, 195], [146, 197, 222], [209, 229, 240], [247, 247, 247],
  [253, 219, 199], [244, 165, 130], [214, 96, 77], [178, 24, 43], [103, 0, 31]];

function between(stops, share) {
  const at = Math.min(1, Math.max(0, share)) * 10;
  const low = Math.min(9, Math.floor(at));
  return stops[low].map((c, i) => Math.round(c + (stops[low + 1][i] - c) * (at - low)));
}
/** Black or white, whichever has more contrast with a colour (WCAG 2.2). */
function inkOn(rgb) {
  const [r, g, b] = rgb.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? '#000' : '#fff';
}
const paper = (rgb) => ({ 'background-color': `rgb(${rgb})`, color: inkOn(rgb) });
const ramp = (stops) => `linear-gradient(90deg,${stops.map((c) => `rgb(${c})`)})`;
/** A colour of the style sheet, which canvases need by value. */
const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
const INKS = 8;
const ink = (i) => css(`--s${i % INKS}`);
