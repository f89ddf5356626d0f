// A cell of a figure: what is known of it, and how that is shown next to it.

// ---- cells ----

const hasValue = (cell) => known(cell.value);
const share = (cell, better = cell.better) => {
  if (!hasValue(cell) || !known(cell.ceiling)) return undefined;
  const of = better === 'higher' ? cell.value / cell.ceiling : better === 'lower' ? cell.ceiling / cell.value : NaN;
  return Number.isFinite(of) && of >= 0 ? of : undefined;
};
const deviation = (cell) => {
  if (!cell.published || !hasValue(cell)) return undefined;
  const off = (cell.value - cell.published[0]) / Math.abs(cell.published[0]);
  return Number.isFinite(off) ? off : undefined;
};
/** Mark and reason of a suspect value. */
function suspicion(run, cell) {
  if (cell.suspect) return [cell.mark || '?', cell.suspect];
  const warning = cell.case && hasValue(cell) && run.warned.get(cell.case);
  return warning ? ['?', warning] : undefined;
}
/** What a mark means, in a word. */
const doubtWord = ([mark]) => (mark === '*' ? 'assumed' : 'suspect');
/** Whether a cell is of a path that is slower than its peers. */
const isSick = (run, cell) => Boolean(cell.case) && run.sick.has(cell.case);
const isOver = (cell) => share(cell) > 1.02 || cell.mark === '!';
const FAR = 0.1;

/** Name of a cell's place. */
function place(fig, cell) {
  if (fig.kind === 'curves' || fig.kind === 'panels') return `${cell.row}, ${tick(cell.x, fig.column_axis)}`;
  const named = (axis, label) => (/^\d+$/.test(label) ? `${axis} ${label}` : label);
  if (fig.row_axis === 'from' && fig.column_axis === 'to') return `${named('from', cell.row)} to ${cell.column}`;
  return [named(fig.row_axis, cell.row), named(fig.column_axis, cell.column)].filter(Boolean).join(', ');
}

/** What is known of a cell: label and text of each line. */
function facts(fig, run, cell) {
  const lines = [];
  const add = (label, text) => lines.push([label, text]);
  const unit = cell.unit ? ` ${cell.unit}` : '';
  const origin = run.simulated ? 'simulated' : 'measured';
  if (cell.facts) return cell.facts;
  if (hasValue(cell)) {
    add(run.simulated ? 'simulated median' : 'median', shown(cell.better, cell.value) + unit);
    if (known(cell.half_width) && cell.half_width > 0) {
      const [low, high] = [cell.value - cell.half_width, cell.value + cell.half_width];
      const relative = cell.value ? ` (± ${percent(cell.half_width / Math.abs(cell.value))})` : '';
      add(`95 % interval${cell.between_repeats ? ' of this run' : ''}`, `${num(low)} to ${num(high)}${relative}`);
    } else if (cell.few) add('95 % interval', `none: ${count(cell.few, 'sample')} are too few`);
    else if (cell.mark === '*') add('95 % interval', 'none: the model assumes a constant of it');
    if (cell.between_repeats) {
      const [low, high] = cell.between_repeats;
      add('95 % interval of this node', `${num(low)} to ${num(high)} (${cell.repeats} processes)`);
    }
    if (known(cell.speed)) add('against peers', signed(cell.speed - 1));
  }
  if (known(cell.ceiling)) {
    const of = share(cell);
    add('ceiling', `${num(cell.ceiling)}${unit}${of === undefined ? '' : ` (${percent(of)} reached)`}`);
  }
  const path = fig.paths && fig.paths[cell.path];
  if (path) {
    add('route', path.route);
    add('narrowest hop', path.narrowest);
    for (const step of path.losses) add(`${num(step.from)} → ${num(step.to)}`, step.why);
    const last = path.losses.length ? path.losses[path.losses.length - 1].to : cell.ceiling;
    if (known(last) && hasValue(cell)) add(`${num(last)} → ${num(cell.value)}`, `${origin}, ${signed(cell.value / last - 1)}`);
  } else if (known(cell.bound)) add('tighter bound', num(cell.bound) + unit);
  if (cell.published) {
    const off = deviation(cell);
    add('published', `${num(cell.published[0])}${unit}${off === undefined ? '' : ` (${origin} ${signed(off)})`}, ${cell.published[1]}`);
  }
  if (cell.detail) add('calls', cell.detail);
  if (cell.pairs !== undefined) {
    const [, base, other] = fig.compared;
    if (known(cell.base) && known(cell.other)) add('all samples', `${base} ${num(cell.base)}${unit}, ${other} ${num(cell.other)}${unit}`);
    add('pairs', `${cell.pairs} of alternating samples`);
    if (cell.is_zero) add('not distinguishable', 'the interval of the differences contains zero');
    if (cell.saturated) add('saturated', cell.saturated);
  }
  const doubt = suspicion(run, cell);
  if (doubt) add(doubtWord(doubt), doubt[1]);
  if (cell.absent) add('no value', cell.absent);
  if (cell.gpus) add('while it ran', cell.gpus.join('; '));
  return lines;
}

// ---- details next to a cell: on hover, by arrow keys, pinned by a click ----

const tip = document.getElementById('tip');
let active = null; // { item, pinned }

async function copy(button, text) {
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Pages opened from a file may lack the clipboard interface.
    const area = document.body.appendChild(el('textarea'));
    area.value = text;
    area.select();
    done = document.execCommand('copy');
    area.remove();
  }
  const words = button.textContent;
  button.textContent = done ? 'Copied' : 'Not allowed';
  setTimeout(() => { button.textContent = words; }, 1200);
}
const copyButton = (label, text) => el('button', { type: 'button', onclick: (event) => copy(event.target, text()) }, label);

function showTip(item, pinned = false) {
  if (active && active.item === item && active.pinned === pinned) return;
  hideTip();
  active = { item, pinned };
  const { fig, run, cell } = item;
  if (item.mark) item.mark(true);
  const lines = facts(fig, run, cell).map(([label, text]) => [el('dt', {}, label), el('dd', {}, text)]);
  const text = cell.case ? [el('p', { className: 'case' }, cell.case)] : [];
  const foot = pinned && cell.case ? [copyButton('Copy case', () => cell.case)]
    : cell.case ? [el('small', {}, 'click to keep this open and copy the case')] : [];
  tip.replaceChildren(el('b', {}, place(fig, cell)), el('dl', {}, lines), ...text, ...foot);
  tip.classList.toggle('pinned', pinned);
  tip.hidden = false;
  const box = item.box();
  const left = Math.min(Math.max(8, box.left + box.width / 2 - tip.offsetWidth / 2), innerWidth - tip.offsetWidth - 8);
  const below = box.top + box.height + 8;
  const top = below + tip.offsetHeight < innerHeight ? below : box.top - tip.offsetHeight - 8;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${Math.max(8, top)}px`;
}
function hideTip() {
  if (!active) return;
  if (active.item.mark) active.item.mark(false);
  active = null;
  tip.hidden = true;
}
document.addEventListener('scroll', () => { if (active && !active.pinned) hideTip(); }, { passive: true });
document.addEventListener('click', (event) => {
  if (active && active.pinned && !event.target.closest('#tip, [data-item], .u-over')) hideTip();
});

/** An element of the page as a place with details. */
function elementItem(fig, run, cell, element) {
  const item = { fig, run, cell, at: cell.at, box: () => element.getBoundingClientRect(), mark: (on) => element.classList.toggle('on', on) };
  element.dataset.item = '';
  element.addEventListener('mouseenter', () => { if (!active || !active.pinned) showTip(item); });
  element.addEventListener('mouseleave', () => { if (active && !active.pinned) hideTip(); });
  element.addEventListener('click', () => showTip(item, true));
  return item;
}

/** Arrow keys walk through items by row and column; Enter pins. */
function walk(box, items) {
  if (!items.length) return;
  box.tabIndex = 0;
  const find = (r, c) => items.find((item) => item.at[0] === r && item.at[1] === c);
  const most = (i) => Math.max(...items.map((item) => item.at[i]));
  box.addEventListener('blur', () => { if (active && !active.pinned) hideTip(); });
  box.addEventListener('keydown', (event) => {
    const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    const at = active && items.includes(active.item) ? active.item : null;
    if (event.key === 'Enter' && at) showTip(at, true);
    if (!step) return;
    event.preventDefault();
    if (!at) { showTip(items[0]); return; }
    let [r, c] = at.at;
    let next;
    do {
      [r, c] = [r + step[0], c + step[1]];
      next = find(r, c);
    } while (!next && r >= 0 && c >= 0 && r <= most(0) && c <= most(1));
    if (next) showTip(next);
  });
}
