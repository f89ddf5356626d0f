// Frames of figures, drawn when they come into view, and what else a reader does with a page.

// ---- the table behind a figure ----

const nothing = (text) => el('p', { className: 'nothing' }, text);

function table(heads, rows) {
  return el('table', { className: 'rows' }, el('thead', {}, el('tr', {}, heads.map(([text, kind]) => el('th', { scope: 'col', className: kind || '' }, text)))),
    el('tbody', {}, rows.map((row) => el('tr', {}, row.map((text, i) => el(i ? 'td' : 'th', { className: heads[i][1] || '' }, text))))));
}
function dataTable(fig, run) {
  const path = (c) => (fig.paths && fig.paths[c.path]) || undefined;
  const optional = (v) => (known(v) ? num(v) : undefined);
  const all = [
    ['median', 'n', (c) => (hasValue(c) ? shown(c.better, c.value) : undefined)], ['unit', '', (c) => c.unit],
    ['± 95 %', 'n', (c) => optional(c.half_width)], ['ceiling', 'n', (c) => optional(c.ceiling)],
    [fig.better === 'lower' ? 'bound / value' : 'of ceiling', 'n', (c) => (share(c) === undefined ? undefined : percent(share(c)))],
    ['tighter bound', 'n', (c) => optional(c.bound)], ['limited by', 'words', (c) => { const p = path(c); return p && p.losses.length ? p.losses[p.losses.length - 1].why : undefined; }],
    ['route', '', (c) => path(c) && path(c).route], ['narrowest hop', '', (c) => path(c) && path(c).narrowest],
    ['published', 'n', (c) => c.published && num(c.published[0])], ['difference', 'n', (c) => (deviation(c) === undefined ? undefined : signed(deviation(c)))],
    ['source', '', (c) => c.published && c.published[1]], ['calls', '', (c) => c.detail],
    ['doubt', 'words', (c) => (suspicion(run, c) || [])[1]], ['no value because', 'words', (c) => c.absent], ['case', 'case', (c) => c.case],
  ].filter(([, , of]) => fig.cells.some((c) => of(c)));
  const shared = all.filter(([, kind, of]) => kind !== 'n' && kind !== 'case' && fig.cells.length > 3 && fig.cells.every((c) => of(c) === of(fig.cells[0])));
  const used = all.filter((column) => !shared.includes(column));
  const keys = fig.kind === 'bars' ? [['what']] : [[fig.row_axis || 'line'], [fig.kind === 'curves' || fig.kind === 'panels' ? axisName(fig.column_axis) : fig.column_axis || 'column']];
  const names = (c) => (keys.length < 2 ? [c.row] : [c.row, known(c.x) ? tick(c.x, fig.column_axis) : c.column]);
  const rows = fig.cells.map((c) => [...names(c), ...used.map(([, , of]) => of(c) || '')]);
  const made = table([...keys, ...used], rows);
  const text = () => [[...keys, ...used].map(([name]) => name), ...rows].map((row) => row.join('\t')).join('\n');
  return el('div', { className: 'data' },
    el('p', { className: 'tools' }, copyButton('Copy table', text), copyButton('Copy case texts', () => fig.cells.map((c) => c.case).filter(Boolean).join('\n'))),
    shared.map(([name, , of]) => el('p', { className: 'common' }, `All rows: ${name}: ${of(fig.cells[0])}`)), el('div', { className: 'scroll tall' }, made));
}

// ---- runs side by side ----

/** Difference of a value from the first run's, and whether it is beyond both intervals. */
function difference(first, other) {
  const relative = other.value / first.value - 1;
  const beyond = known(first.half_width) && known(other.half_width) && Math.abs(other.value - first.value) > first.half_width + other.half_width;
  return Number.isFinite(relative) ? { relative, beyond } : undefined;
}
function compared(frame) {
  const rows = new Map();
  frame.panes.forEach(({ fig, index }) => {
    const seen = new Map();
    for (const cell of fig.cells.filter(hasValue)) {
      const name = place(fig, cell);
      seen.set(name, (seen.get(name) || 0) + 1);
      const id = `${name}\n${seen.get(name)}`;
      if (!rows.has(id)) rows.set(id, { name, cells: [] });
      rows.get(id).cells[index] = cell;
    }
  });
  const all = [...rows.values()].filter((row) => row.cells.filter(Boolean).length > 1);
  const changed = all.filter((row) => row.cells[0] && row.cells.slice(1).some((c) => c && (difference(row.cells[0], c) || {}).beyond)).length;
  return { all, changed };
}
function comparedTable({ all }) {
  const value = (row) => (_, i) => {
    const cell = row.cells[i];
    if (!cell) return '–';
    const change = i && row.cells[0] ? difference(row.cells[0], cell) : undefined;
    return num(cell.value) + (change ? `  ${signed(change.relative)}${change.beyond ? (change.relative > 0 ? ' ▲' : ' ▼') : ''}` : '');
  };
  return el('div', { className: 'scroll tall' }, table([['what'], ...data.runs.map((run) => [run.name, 'n'])], all.map((row) => [row.name, ...data.runs.map(value(row))])));
}

// ---- frames ----

/** Buttons or, of many, a list, of which one is chosen. */
function choice(name, options, chosen, pick) {
  if (options.length > 6 || options.reduce((sum, [, label]) => sum + label.length, 0) > 62) {
    const made = el('select', { 'aria-label': name, onchange: (event) => pick(event.target.value) }, options.map(([id, label]) => el('option', { value: id }, label)));
    return el('label', { className: 'choice' }, el('span', {}, name), made);
  }
  const buttons = options.map(([id, label]) => el('button', {
    type: 'button', 'aria-pressed': String(id === chosen), value: id,
    onclick: () => { buttons.forEach((b) => b.setAttribute('aria-pressed', String(b.value === id))); pick(id); },
  }, label));
  return el('div', { className: 'choice', role: 'group', 'aria-label': name }, el('span', {}, name), buttons);
}

/** What differs between titles: words without those that all begin or end with. */
function differing(titles) {
  const words = titles.map((title) => title.split(' '));
  const plain = (word) => (word || '').replace(/[,:]$/, '');
  const least = Math.min(...words.map((w) => w.length));
  let [head, tail] = [0, 0];
  while (head < least - 1 && words.every((w) => plain(w[head]) === plain(words[0][head]))) head += 1;
  while (tail < least - 1 - head && words.every((w) => plain(w[w.length - 1 - tail]) === plain(words[0][words[0].length - 1 - tail]))) tail += 1;
  const labels = words.map((w) => plain(w.slice(head, w.length - tail).join(' ')));
  const common = plain([...words[0].slice(0, head), ...words[0].slice(words[0].length - tail)].join(' '));
  return { labels, common };
}

/** What others print for the same cases: a tab of the figure that it belongs to. */
const isTheirs = (fig) => /-(osu|nccl-tests)(-|$)/.test(fig.id);

/** Figures by suite and form: those of one form differ in one thing and share a frame. */
function collectFrames() {
  const frames = new Map();
  data.runs.forEach((run, index) => {
    run.warned = new Map(run.warnings.filter((w) => w.subject.includes(' by ')).map((w) => [w.subject, `${w.code}: ${w.text}`]));
    run.sick = new Set(run.sick);
    [...run.figures, ...(run.pictures || [])].forEach((fig, n) => {
      const form = [fig.suite, fig.kind, fig.unit, fig.row_axis, fig.column_axis, (fig.columns || []).length > 12 ? fig.id : ''];
      const id = data.runs.length > 1 ? `${fig.suite}\n${fig.id}` : fig.cells.length ? form.join('\n') : `${n}`;
      const pane = { fig, run, index, drawn: false };
      const base = data.runs.length === 1 && isTheirs(fig) && [...frames.values()].find((frame) => frame.suite === fig.suite);
      if (base) base.panes.push(pane);
      else if (frames.has(id)) frames.get(id).panes.push(pane);
      else frames.set(id, { suite: fig.suite, panes: [pane] });
    });
  });
  const taken = new Set($$('[id]').map((e) => e.id));
  for (const frame of frames.values()) {
    const several = data.runs.length > 1;
    const { labels, common } = differing(frame.panes.map((pane) => pane.fig.title));
    frame.panes.forEach((pane, i) => { pane.label = several ? pane.run.name : labels[i]; });
    frame.title = frame.panes.length === 1 || several ? frame.panes[0].fig.title : common.length > 7 ? common : `${frame.panes[0].fig.title} +${frame.panes.length - 1}`;
    for (const pane of frame.panes) {
      const slug = pane.fig.id.toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-|-$/g, '') || 'figure';
      pane.id = slug;
      for (let n = 2; taken.has(pane.id); n += 1) pane.id = `${slug}-${n}`;
      taken.add(pane.id);
    }
  }
  return [...frames.values()];
}

/** Whether a figure needs the whole width. */
function isWide(fig) {
  if (['panels', 'gaps', 'errors', 'stacks'].includes(fig.kind)) return true;
  const label = Math.max(0, ...fig.rows.map((row) => row.length));
  const columns = (fig.columns || []).map((column) => Math.max(column.length, fig.kind === 'matrix' ? 7.6 : 6));
  return (fig.kind === 'matrix' || fig.kind === 'sheet') && (label + columns.reduce((a, b) => a + b, 0)) * 6.4 > 440;
}

function agreement(fig) {
  const all = fig.cells.filter((c) => deviation(c) !== undefined);
  if (!all.length) return '';
  const worst = all.reduce((a, b) => (Math.abs(deviation(b)) > Math.abs(deviation(a)) ? b : a));
  const sources = [...new Set(all.map((c) => c.published[1]))];
  const more = sources.length > 3 ? `; and ${sources.length - 3} more` : '';
  return el('p', { className: 'agreement' }, el('b', {}, 'Published: '),
    `${all.length} compared, median deviation ${percent(median(all.map((c) => Math.abs(deviation(c)))))}, greatest ${signed(deviation(worst))} (${place(fig, worst)}). `,
    el('span', { className: 'source' }, sources.slice(0, 3).join('; ') + more));
}

function drawPane(frame, pane) {
  if (pane.drawn) return;
  pane.drawn = true;
  const { fig, run, box } = pane;
  box.style.minHeight = '';
  if (frame.panes.length > 1) box.append(el('h4', { className: 'paper' }, data.runs.length > 1 ? `${run.name}: ${fig.title}` : fig.title));
  const plot = el('div', { className: 'plot' });
  if (fig.finding) box.append(el('p', { className: 'finding', title: 'click for all of it', onclick: (event) => event.currentTarget.classList.toggle('whole') }, fig.finding));
  box.append(plot);
  if (fig.cells.length && !fig.cells.some(hasValue)) {
    const reasons = [...new Set(fig.cells.map((c) => c.absent).filter(Boolean))];
    plot.append(nothing(`Not measured, ${count(fig.cells.length, 'case')}: ${reasons[0] || ''}${reasons.length > 1 ? ` (${count(reasons.length - 1, 'reason')} more)` : ''}`));
  } else DRAW[fig.kind](fig, run, plot);
  const details = el('details', { className: 'behind', ontoggle: (event) => { if (event.target.open && event.target.childElementCount === 1) event.target.append(dataTable(fig, run)); } },
    el('summary', {}, `Table: ${count(fig.cells.filter(hasValue).length, 'value')}`));
  const command = fig.command ? [el('code', { title: fig.command }, fig.command), copyButton('Copy', () => fig.command)] : [];
  box.append(agreement(fig), el('div', { className: 'foot' }, details, el('p', { className: 'command' }, command)));
  root.dataset.drawn = String(frames.flatMap((f) => f.panes).filter((p) => p.drawn).length);
}

function choosePane(frame, pane) {
  frame.shown = pane;
  frame.heading.replaceChildren(pane.fig.title);
  frame.article.classList.toggle('wide', isWide(pane.fig));
  for (const other of frame.panes) other.box.hidden = other !== pane;
  if (frame.near) drawPane(frame, pane);
  const list = $$('.tabs select', frame.article)[0];
  if (list) list.value = pane.id;
  for (const button of $$('.tabs button', frame.article)) button.setAttribute('aria-pressed', String(button.value === pane.id));
}

/** A guess of a figure's height, so that the page keeps its length while it draws. */
function guess(fig) {
  const rows = fig.rows.length;
  return { matrix: 130 + rows * 27, bars: 90 + rows * 21, sheet: 110 + Math.min(22, rows) * 24, stacks: 80 + rows * 30, panels: 120 + Math.ceil((fig.panels || []).length / 4) * 180, scatter: 470, errors: 220 }[fig.kind] || 350;
}

function buildFrame(frame) {
  const [first] = frame.panes;
  frame.heading = el('h3', {}, first.fig.title);
  for (const pane of frame.panes) pane.box = el('div', { className: 'pane', id: pane.id, hidden: pane !== first, style: { 'min-height': `${guess(pane.fig)}px` } });
  const options = frame.panes.map((pane) => [pane.id, pane.label]);
  const tabs = frame.panes.length > 1 ? choice(data.runs.length > 1 ? 'Run' : 'Show', options, first.id, (id) => choosePane(frame, frame.panes.find((pane) => pane.id === id))) : '';
  if (tabs) tabs.classList.add('tabs');
  frame.article = el('article', { className: isWide(first.fig) ? 'frame wide' : 'frame' },
    el('p', { className: 'tag' }, frame.suite), el('header', {}, frame.heading, first.run.simulated && el('span', { className: 'chip sim' }, 'simulated'),
      el('button', { type: 'button', className: 'widen', title: 'full width', 'aria-label': 'full width', onclick: () => frame.article.classList.toggle('wide') }, '⤢')), tabs, frame.panes.map((pane) => pane.box));
  if (data.runs.length > 1) {
    const side = compared(frame);
    const words = frame.panes.length === 1 ? `only in ${first.run.name}` : side.all.length ? `${side.changed} of ${count(side.all.length, 'value')} differ beyond their intervals` : 'no value in common';
    frame.article.append(side.all.length ? el('details', { className: 'behind', ontoggle: (event) => { if (event.target.open && event.target.childElementCount === 1) event.target.append(comparedTable(side)); } }, el('summary', {}, `Side by side: ${words}`)) : el('p', { className: 'axes' }, words));
  }
  frame.shown = first;
  return frame.article;
}

const frames = collectFrames();
const place0 = document.getElementById('figures');
const nav = document.querySelector('nav [data-figures]');
const suites = [...new Set(frames.map((frame) => frame.suite))];
for (const suite of suites) {
  const own = frames.filter((frame) => frame.suite === suite);
  const id = `suite-${suite.toLowerCase().replace(/[^a-z0-9]+/g, '-')}`;
  const articles = own.map(buildFrame);
  place0.append(el('section', { id, className: 'suite', 'aria-label': suite }, articles));
  if (nav && suite) {
    nav.append(el('li', {}, el('details', {}, el('summary', {}, el('a', { href: `#${id}` }, suite)),
      el('ul', {}, own.map((frame) => el('li', {}, el('a', { href: `#${frame.panes[0].id}` }, frame.title)))))));
  }
}
root.dataset.figures = String(frames.flatMap((frame) => frame.panes).length);

const near = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((e) => e.isIntersecting)) {
    const frame = frames.find((f) => f.article === entry.target);
    frame.near = true;
    near.unobserve(entry.target);
    drawPane(frame, frame.shown);
  }
}, { rootMargin: '400px' });
for (const frame of frames) near.observe(frame.article);

// Frames close up: each takes as many rows of 4 px as it is high.
const packed = new ResizeObserver((entries) => requestAnimationFrame(() => {
  for (const { target } of entries) target.style.setProperty('grid-row-end', `span ${Math.ceil((target.offsetHeight + 13) / 4)}`);
}));
for (const part of $$('.frame')) packed.observe(part);

// ---- sparks of tiles ----

for (const spark of $$('[data-spark]')) {
  const values = spark.dataset.spark.split(' ').map(Number);
  const most = Math.max(...values);
  if (values.length < 2 || !(most > 0)) continue;
  const corners = values.map((v, i) => `${i * 100 / (values.length - 1)}% ${100 - v / most * 90}%`);
  spark.style.clipPath = `polygon(0 100%,${corners},100% 100%)`;
}

// ---- print, themes ----

const redraw = () => charts.forEach((u) => u.redraw(false, true));
addEventListener('beforeprint', () => {
  root.classList.add('printing');
  for (const details of $$('details.more')) details.open = true;
  for (const frame of frames) {
    for (const pane of frame.panes) {
      pane.box.hidden = false;
      drawPane(frame, pane);
    }
  }
  redraw();
});
addEventListener('afterprint', () => {
  root.classList.remove('printing');
  for (const frame of frames) choosePane(frame, frame.shown);
  redraw();
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);

// ---- anchors, filter, keys, copying ----

function reveal() {
  const id = decodeURIComponent(location.hash.slice(1));
  const frame = frames.find((f) => f.panes.some((pane) => pane.id === id));
  if (frame) {
    frame.near = true;
    choosePane(frame, frame.panes.find((pane) => pane.id === id));
    frame.article.scrollIntoView();
  }
  for (let e = document.getElementById(id); e; e = e.parentElement) if (e.matches('details')) e.open = true;
}
addEventListener('hashchange', reveal);
reveal();

const words = (frame) => {
  frame.words ||= frame.panes.flatMap(({ fig }) => [fig.suite, fig.title, fig.finding, ...fig.rows, ...(fig.columns || []), ...fig.cells.map((c) => c.case || '')]).join('\n').toLowerCase();
  return frame.words;
};
const field = document.querySelector('[data-find]');
if (field) {
  field.addEventListener('input', () => {
    const wanted = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let left = 0;
    for (const frame of frames) {
      frame.article.hidden = !wanted.every((word) => words(frame).includes(word));
      left += frame.article.hidden ? 0 : 1;
    }
    for (const suite of $$('section.suite')) suite.hidden = !$$('.frame', suite).some((article) => !article.hidden);
    for (const row of $$('.group tbody tr')) row.hidden = !wanted.every((word) => row.textContent.toLowerCase().includes(word));
    document.querySelector('[data-found]').textContent = wanted.length ? `${left} of ${count(frames.length, 'figure')}` : '';
  });
}
const step = (by) => {
  const all = frames.map((frame) => frame.article).filter((article) => !article.hidden);
  const at = all.findIndex((article) => article.getBoundingClientRect().top > (by > 0 ? 90 : 10));
  const next = by > 0 ? all[at] : all[(at < 0 ? all.length : at) - 1];
  if (next) next.scrollIntoView();
};
for (const text of $$('.observation')) text.addEventListener('click', () => text.classList.toggle('whole'));
const keys = { '/': () => field && field.focus(), j: () => step(1), k: () => step(-1), t: () => scrollTo(0, 0) };
document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape') hideTip();
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches('input,textarea,select') || !keys[event.key]) return;
  event.preventDefault();
  keys[event.key]();
});
document.addEventListener('click', (event) => {
  const button = event.target.closest('[data-copy]');
  if (!button) return;
  const text = button.previousElementSibling;
  copy(button, button.dataset.copy === 'action' ? $$('code', text).map((c) => c.textContent).join('\n') || text.textContent : text.textContent);
});
