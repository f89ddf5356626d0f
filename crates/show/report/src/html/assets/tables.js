// Figures made of elements: heat maps, bars, sheets, stacks.

// ---- heat maps ----

/** The scale of a matrix: the best value is bright; equal values keep one colour in spite of noise. */
function valueScale(fig) {
  const square = fig.rows.length > 1 && fig.rows.join('\n') === fig.columns.join('\n');
  const values = fig.cells.filter((c) => hasValue(c) && c.value > 0 && !(square && c.at[0] === c.at[1])).map((c) => c.value);
  if (!values.length) return undefined;
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const spread = low / high;
  const higher = fig.better === 'higher';
  const [best, worst] = higher ? [high, low] : [low, high];
  const log = spread < 0.1;
  const dark = log ? worst : higher ? (spread >= 0.5 ? best / 2 : 0) : best * Math.max(1 / spread, 2);
  const at = (v) => {
    if (log) return higher ? Math.log(v / dark) / Math.log(best / dark) : Math.log(dark / v) / Math.log(dark / best);
    return higher ? (v - dark) / (best - dark) : (best / v - best / dark) / (1 - best / dark);
  };
  return { best, dark, log, at: (v) => (Number.isFinite(at(v)) ? at(v) : 0) };
}

const legend = (...parts) => el('p', { className: 'legend' }, parts);
const key = (name, text, style) => el('span', {}, el('i', { className: `key ${name}`, style }), text);
const rampKey = (stops, from, to, note) => el('span', {}, from, el('i', { className: 'ramp', style: { background: ramp(stops) } }), to, note && ` ${note}`);

function heatTable(fig, rows, columns, corner, paint) {
  const byPlace = new Map(fig.cells.map((cell) => [String(cell.at), cell]));
  const large = columns.length >= 12;
  const has = (r, c) => byPlace.has(`${r},${c}`);
  const shownRows = rows.filter(([r]) => !large || columns.some((_, c) => has(r, c)));
  const shownCols = columns.map((label, c) => [c, label]).filter(([c]) => !large || rows.some(([r]) => has(r, c)));
  const items = [];
  const body = shownRows.map(([r, label]) => el('tr', {}, el('th', { scope: 'row' }, label), shownCols.map(([c]) => {
    const cell = byPlace.get(`${r},${c}`);
    const td = el('td');
    if (cell) items.push(paint(cell, td));
    return td;
  })));
  const head = el('tr', {}, el('th', { className: 'corner' }, corner), shownCols.map(([, label]) => el('th', { scope: 'col' }, label)));
  const table = el('table', { className: large ? 'heat dense' : 'heat' }, el('thead', {}, head), el('tbody', {}, body));
  walk(table, items);
  return table;
}

const PEERS = 0.25;

function drawMatrix(fig, run, box) {
  const scale = valueScale(fig);
  const widths = [...new Set(fig.cells.map((c) => c.links).filter(known))].sort((a, b) => b - a);
  const paints = [];
  const paint = (cell, td) => {
    paints.push([cell, td]);
    return elementItem(fig, run, cell, td);
  };
  const views = { value: 'value' };
  if (fig.unit !== '%' && fig.cells.some((c) => share(c) !== undefined)) views.peak = 'of peak';
  if (fig.cells.some((c) => known(c.speed))) views.peers = 'against peers';
  const foot = el('div');
  const look = (view) => {
    for (const [cell, td] of paints) {
      td.removeAttribute('style');
      const classes = [];
      let [text, colours] = ['–', {}];
      if (!hasValue(cell)) classes.push('absent');
      else {
        const doubt = suspicion(run, cell);
        const of = view === 'peak' ? share(cell) : view === 'peers' ? cell.speed : cell.value;
        text = view === 'value' ? shown(fig.better, cell.value) : of === undefined ? num(cell.value) : view === 'peak' ? percent(of) : signed(of - 1);
        if (known(of) && view === 'value' && scale) colours = paper(between(VIRIDIS, scale.at(of)));
        if (known(of) && view === 'peak') colours = paper(between(VIRIDIS, of));
        if (known(of) && view === 'peers') colours = paper(between(DIVERGING, ((1 - of) / PEERS + 1) / 2));
        if (widths.length > 1 && known(cell.links)) classes.push(`w${Math.min(2, widths.indexOf(cell.links))}`);
        if (Math.abs(deviation(cell)) > FAR) classes.push('far');
        if (isOver(cell)) classes.push('over');
        if (doubt) { classes.push('suspect'); text += doubt[0]; }
        if (isSick(run, cell)) { classes.push('sick'); colours = {}; }
      }
      td.className = classes.join(' ');
      td.textContent = text;
      for (const [name, value] of Object.entries(colours)) td.style.setProperty(name, value);
    }
    const any = (test) => fig.cells.some(test);
    const parts = [];
    if (view === 'value' && scale) parts.push(rampKey(VIRIDIS, num(scale.dark), `${num(scale.best)} ${fig.unit}`, scale.log ? 'logarithmic' : ''));
    if (view === 'peak') parts.push(rampKey(VIRIDIS, '0 %', '100 %', 'of the peak of its narrowest hop'));
    if (view === 'peers') parts.push(rampKey([...DIVERGING].reverse(), '-25 %', '+25 %', 'of the median of equal paths'));
    if (any((c) => isSick(run, c))) parts.push(key('sick', 'faulty: see the findings'));
    if (widths.length > 1) parts.push(widths.slice(0, 3).map((n, i) => key(`edge w${i}`, count(n, 'link') + (i === 2 && widths.length > 3 ? ' or fewer' : ''))));
    if (any((c) => !hasValue(c))) parts.push(key('absent', 'not measured'));
    const doubts = fig.cells.map((c) => suspicion(run, c)).filter(Boolean);
    for (const word of new Set(doubts.map(doubtWord))) parts.push(key('suspect', word));
    if (any((c) => Math.abs(deviation(c)) > FAR)) parts.push(key('far', 'over 10 % from the published value'));
    if (any(isOver)) parts.push(key('over', 'beyond its ceiling: one of the two is wrong'));
    foot.replaceChildren(legend(...parts.flat()));
  };
  const corner = `${fig.row_axis} ↓ ${fig.column_axis} →`;
  const table = heatTable(fig, fig.rows.map((label, r) => [r, label]), fig.columns, corner, paint);
  if (Object.keys(views).length > 1) box.append(choice('Colour', Object.entries(views), 'value', look));
  box.append(el('div', { className: 'scroll tall' }, table), foot);
  look('value');
  drawLosses(fig, box);
}

/** Where bandwidth is lost: for each class of paths a bar from its peak down to what is reached. */
function drawLosses(fig, box) {
  if (!fig.losses || fig.losses.length > 8) return;
  const most = Math.max(...fig.losses.map((c) => c.peak[1]));
  const wide = (v) => `${Math.max(0, v / most * 100)}%`;
  const range = ([low, high]) => (num(low) === num(high) ? num(high) : `${num(low)}–${num(high)}`);
  const share = ([low, high]) => (percent(low) === percent(high) ? percent(high) : `${percent(low)}–${percent(high)}`);
  const bar = (c) => el('div', { className: 'loss' },
    el('span', { className: 'name' }, `${c.hop}${c.forwarded ? ', forwarded' : ''} ×${c.paths}${c.slow ? ` (${c.slow} slow)` : ''}`),
    el('span', { className: 'track' },
      el('i', { className: 'peak', style: { width: wide(c.peak[1]) } }),
      el('i', { className: 'protocol', style: { width: wide(c.after_protocol[1]) } }),
      c.limit && el('i', { className: 'limit', style: { width: wide(c.limit[1]) } }),
      el('i', { className: 'fill', style: { width: wide(c.measured[1]) } })),
    el('span', { className: 'number' }, el('b', {}, range(c.measured)), ` of ${range(c.peak)}`),
    el('span', { className: 'why' }, `${share(c.share)}${c.held_by ? `, limited by ${c.held_by}` : ''}`));
  box.append(el('div', { className: 'losses' }, [...fig.losses].reverse().map(bar)));
}

function drawGaps(fig, run, box) {
  const relative = (c) => (c.base > 0 && hasValue(c) ? c.value / c.base : undefined);
  const clear = fig.cells.filter((c) => !c.is_zero && !c.saturated).map((c) => Math.abs(relative(c) || 0));
  const most = Math.max(0.1, ...clear);
  const reach = [0.1, 0.2, 0.5, 1].find((end) => most <= end * 1.0001) || 2;
  const paint = (cell, td) => {
    const of = relative(cell);
    td.className = [!hasValue(cell) && 'absent', cell.is_zero && 'zero', cell.saturated && 'queue'].filter(Boolean).join(' ');
    td.textContent = hasValue(cell) ? `${cell.value >= 0 ? '+' : '−'}${num(Math.abs(cell.value))}` : '–';
    if (known(of) && !cell.is_zero && !cell.saturated) {
      for (const [name, value] of Object.entries(paper(between(DIVERGING, (of / reach + 1) / 2)))) td.style.setProperty(name, value);
    }
    return elementItem(fig, run, cell, td);
  };
  const [quantity, base, other] = fig.compared;
  const per = fig.panels.length ? fig.rows.length / fig.panels.length : 0;
  const panel = (p) => {
    const rows = fig.rows.slice(p.first, p.first + per).map((label, i) => [p.first + i, label.slice(p.name.length + 2)]);
    const table = heatTable(fig, rows, fig.columns, `${fig.row_axis} ↓ ${fig.column_axis} →`, paint);
    return el('div', {}, el('h4', {}, p.name, el('small', {}, ` ${other} − ${base}, ${fig.unit}`)), el('div', { className: 'scroll' }, table));
  };
  box.append(el('div', { className: 'panels' }, fig.panels.map(panel)));
  const parts = [rampKey(DIVERGING, `−${percent(reach)}`, `+${percent(reach)}`, `of the ${quantity} of ${base}`)];
  if (fig.cells.some((c) => c.is_zero)) parts.push(key('zero', 'not distinguishable from zero'));
  if (fig.cells.some((c) => c.saturated)) parts.push(key('queue', 'saturated: it measures throughput, not the copy'));
  box.append(legend(...parts));
}

// ---- bars, sheets, stacks ----

const niceStep = (span, parts) => {
  const rough = span / Math.max(1, parts);
  const decade = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((m) => m * decade).find((step) => step >= rough * (1 - 1e-9));
};
const linearTicks = (low, high, parts) => {
  if (!(high > low)) return [];
  const step = niceStep(high - low, parts);
  const list = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-12) + 1e-300 && list.length <= parts + 1; i += 1) list.push(+(i * step).toPrecision(12));
  return list;
};
function linearBounds(values, parts) {
  const [low, high] = [Math.min(0, ...values), Math.max(0, ...values)];
  if (low === high) return [0, 1];
  const step = niceStep(high - low, parts);
  return [Math.floor(low / step) * step, Math.ceil(high / step - 1e-9) * step];
}

function drawBars(fig, run, box) {
  const lengths = fig.cells.flatMap((c) => [hasValue(c) ? c.value + (c.half_width || 0) : undefined, c.ceiling, c.bound, c.published && c.published[0]]).filter(known);
  const [low, high] = linearBounds(lengths, 5);
  const at = (v) => Math.min(1, Math.max(0, (v - low) / (high - low))) * 100;
  const span = (a, b) => ({ left: `${at(Math.min(a, b))}%`, width: `${Math.abs(at(b) - at(a))}%` });
  const ticks = linearTicks(low, high, 5);
  // The last label ends at the edge, next to the one before it.
  const widest = Math.max(...ticks.map((t) => tick(t, '').length));
  const isLabelled = (i) => i === ticks.length - 1 || (widest > 4 ? i === 0 : i < ticks.length - (widest > 2 ? 2 : 1));
  const items = [];
  const bar = (c) => {
    const doubt = suspicion(run, c);
    const of = fig.unit === '%' ? undefined : share(c);
    const row = el('div', { className: `bar${doubt ? ' suspect' : ''}${isSick(run, c) ? ' sick' : ''}` },
      el('span', { className: 'name' }, c.row),
      el('span', { className: 'track', style: { '--step': `${100 / Math.max(1, ticks.length - 1)}%` } },
        known(c.ceiling) && el('i', { className: 'ceil', style: span(0, c.ceiling) }),
        hasValue(c) && el('i', { className: 'fill', style: span(0, c.value) }),
        hasValue(c) && c.half_width > 0 && el('i', { className: 'whisker', style: span(c.value - c.half_width, c.value + c.half_width) }),
        known(c.bound) && el('i', { className: 'bound', style: { left: `${at(c.bound)}%` } }),
        c.published && el('i', { className: 'pub', style: { left: `${at(c.published[0])}%` } })),
      hasValue(c) ? el('span', { className: 'number' }, el('b', {}, shown(fig.better, c.value), doubt && doubt[0]), of !== undefined && ` ${percent(of)}`)
        : el('span', { className: 'number why' }, 'not measured'));
    items.push(elementItem(fig, run, { ...c, at: [c.at[0], 0] }, row));
    return row;
  };
  const axis = el('div', { className: 'bar axis' }, el('span'), el('span', { className: 'track' },
    ticks.filter((_, i) => isLabelled(i)).map((t) => el('span', { style: { left: `${at(t)}%` } }, tick(t, '')))), el('span', { className: 'number' }, fig.unit));
  const bars = el('div', { className: 'bars' }, axis, fig.cells.map(bar));
  walk(bars, items);
  const any = (test) => fig.cells.some(test);
  box.append(bars, legend(key('fill', `${run.simulated ? 'simulated' : 'measured'} median`),
    any((c) => c.half_width > 0) && key('whisker-key', '95 % interval'), any((c) => known(c.ceiling)) && key('ceil', 'ceiling'),
    any((c) => known(c.bound)) && key('bound', 'tighter bound'), any((c) => c.published) && key('pub', 'published')));
}

function drawSheet(fig, run, box) {
  const columns = fig.columns.map((_, c) => fig.cells.filter((cell) => cell.at[1] === c));
  const ends = columns.map((cells) => {
    const values = cells.filter(hasValue).map((cell) => cell.value);
    return [Math.min(...values), Math.max(...values)];
  });
  const paint = (cell, td) => {
    const [low, high] = ends[cell.at[1]];
    const best = { higher: cell.value >= high, lower: cell.value <= low }[cell.better] && low < high;
    const doubt = suspicion(run, cell);
    td.className = hasValue(cell) ? [best && 'best', doubt && 'doubt'].filter(Boolean).join(' ') : 'absent';
    td.textContent = hasValue(cell) ? shown(cell.better, cell.value) + (doubt ? doubt[0] : '') : '–';
    if (hasValue(cell) && high > 0) td.style.setProperty('--w', `${Math.min(100, Math.max(0, cell.value / high * 100))}%`);
    return elementItem(fig, run, cell, td);
  };
  const heads = fig.columns.map((name, c) => {
    const unit = columns[c].length ? columns[c][0].unit : '';
    return unit ? `${name}, ${unit}` : name;
  });
  const table = heatTable(fig, fig.rows.map((label, r) => [r, label]), heads, fig.row_axis, paint);
  table.classList.remove('dense');
  table.classList.add('sheet');
  box.append(el('div', { className: 'scroll tall' }, table), legend('bars are shares of the greatest of a column; the best of a column is bold'));
}

function drawStacks(fig, run, box) {
  const names = [...new Set(fig.cells.map((c) => c.column))];
  const items = [];
  const part = (c) => {
    const i = names.indexOf(c.column) % INKS;
    const made = el('span', { className: 'part', style: { 'flex-basis': `${c.value}%`, '--c': `var(--s${i})` } }, c.value >= 9 && `${c.column} ${percent(c.value / 100)}`);
    items.push(elementItem(fig, run, c, made));
    return made;
  };
  const rows = fig.rows.map((label, r) => el('div', { className: 'bar' }, el('span', { className: 'name' }, label),
    el('span', { className: 'whole' }, fig.cells.filter((c) => c.at[0] === r && c.value > 0).map(part))));
  const stacks = el('div', { className: 'bars stacks' }, rows);
  walk(stacks, items);
  box.append(stacks, legend(...names.map((name, i) => key('part', name, { '--c': `var(--s${i % INKS})` }))));
}
