// Figures on a canvas, by uPlot: curves, panels, predicted over measured values.

// ---- charts ----

const isLog = (values) => {
  const positive = values.filter((v) => v > 0);
  return positive.length > 0 && Math.max(...positive) / Math.min(...positive) >= 10;
};
const oneTwoFive = (low, high) => {
  const list = [];
  for (let d = Math.floor(Math.log10(low)) - 1; d <= Math.ceil(Math.log10(high)) + 1; d += 1) for (const m of [1, 2, 5]) list.push(+(m * 10 ** d).toPrecision(3));
  return list;
};
const thin = (list, most) => list.filter((_, i) => i % Math.max(1, Math.ceil(list.length / Math.max(1, most))) === 0);
function logTicks(low, high, most, binary) {
  const inside = (v) => v >= low * (1 - 1e-9) && v <= high * (1 + 1e-9);
  if (binary) {
    const list = [];
    for (let p = Math.ceil(Math.log2(low) - 1e-9); p <= Math.log2(high) + 1e-9; p += 1) list.push(2 ** p);
    return thin(list, most);
  }
  const fine = oneTwoFive(low, high).filter(inside);
  return fine.length <= most ? fine : thin(fine.filter((v) => /^1(0*|\.0*)?$|^0\.0*1$|^1e/.test(String(v))), most);
}
/** Ends of an axis of values: from zero to a tick, or of a logarithmic one the next 1, 2 or 5. */
function bounds(values, log) {
  const used = values.filter((v) => known(v) && (!log || v > 0));
  if (!used.length) return [log ? 0.1 : 0, 1];
  if (!log) return linearBounds(used, 5);
  const [low, high] = [Math.min(...used), Math.max(...used)];
  const list = oneTwoFive(low, high);
  return [list.filter((v) => v <= low * (1 + 1e-9)).pop() / (low === high ? 2 : 1), list.find((v) => v >= high * (1 - 1e-9)) * (low === high ? 2 : 1)];
}
const COUNTS = ['threads', 'ranks', 'pairs', 'depth'];
const charts = new Set();

/**
 * A chart of lines over one axis: `spec` has `lines` (name, ink, cells), and what all panels share.
 * Drag zooms, a double click shows all.
 */
function chart(box, fig, run, spec) {
  const { lines, xUnit, yUnit, scatter } = spec;
  const xLog = spec.xLog;
  const usable = (c) => hasValue(c) && known(c.x) && (!xLog || c.x > 0) && (!spec.yLog || c.value > 0);
  const points = lines.flatMap((line, s) => line.cells.filter(usable).map((cell) => ({ cell, s: s + 1 })));
  const xs = scatter ? points.map((p) => p.cell.x).sort((a, b) => a - b)
    : [...new Set(lines.flatMap((line) => line.cells.map((c) => c.x)).filter((x) => known(x) && (!xLog || x > 0)))].sort((a, b) => a - b);
  const columns = lines.map((line) => {
    const column = new Array(xs.length).fill(undefined);
    for (const cell of line.cells) {
      let i = xs.indexOf(cell.x);
      // Points of a scatter plot may share a place: each has its own row.
      while (scatter && i >= 0 && column[i] !== undefined) i += 1;
      if (i >= 0) column[i] = usable(cell) ? cell.value : null;
    }
    return column;
  });
  const pad = (low, high) => {
    if (xLog) { const f = low === high ? 2 : (high / low) ** 0.03; return [low / f, high * f]; }
    const d = low === high ? 1 : (high - low) * 0.03;
    return [low - d, high + d];
  };
  const full = pad(...(spec.xEnds || [xs[0], xs[xs.length - 1]]));
  const drawn = [Math.min(...points.map((p) => p.cell.value)), Math.max(...points.map((p) => p.cell.value))];
  const wholeCounts = xs.every(Number.isInteger);
  const font = '11px system-ui, sans-serif';
  const axis = (log, unit, binary, most) => ({
    font, stroke: () => css('--soft'), grid: { stroke: () => css('--hair'), width: 1 }, ticks: { show: false }, gap: 4, filter: (u, splits) => splits,
    splits: (u, _, low, high) => (log ? logTicks(low, high, most(u), binary) : linearTicks(low, high, most(u))).filter((v) => !binary || !wholeCounts || Number.isInteger(v)),
    values: (u, splits) => splits.map((v) => tick(v, unit)),
  });
  const binary = xUnit === 'B' || COUNTS.includes(xUnit);
  const draw = (u) => {
    const { ctx, bbox } = u;
    const dpr = uPlot.pxRatio;
    const [left, right, top, foot] = [bbox.left, bbox.left + bbox.width, bbox.top, bbox.top + bbox.height];
    const X = (v) => u.valToPos(v, 'x', true);
    const Y = (v) => u.valToPos(v, 'y', true);
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, top - 1, bbox.width, bbox.height + 2);
    ctx.clip();
    ctx.lineWidth = 1.2 * dpr;
    ctx.font = `${10.5 * dpr}px system-ui, sans-serif`;
    const path = (places, colour, dash) => {
      ctx.beginPath();
      places.forEach(([x, y], i) => (i ? ctx.lineTo(x, y) : ctx.moveTo(x, y)));
      ctx.strokeStyle = colour;
      ctx.setLineDash(dash.map((d) => d * dpr));
      ctx.stroke();
      ctx.setLineDash([]);
    };
    const label = (text, x, y, colour, align) => {
      ctx.textAlign = align;
      ctx.lineJoin = 'round';
      ctx.strokeStyle = css('--card');
      ctx.lineWidth = 3 * dpr;
      ctx.strokeText(text, x, y);
      ctx.fillStyle = colour;
      ctx.fillText(text, x, y);
      ctx.lineWidth = 1.2 * dpr;
    };
    for (const by of scatter ? [1, 1.1, 0.9] : []) {
      const ends = full.map((x) => [X(x), Y(x * by)]);
      path(ends, css('--mark'), by === 1 ? [] : [2, 3]);
    }
    let row = 0;
    for (const [x, text] of spec.marks || []) {
      if (x < u.scales.x.min || x > u.scales.x.max) continue;
      path([[X(x), top], [X(x), foot]], css('--mark'), [1, 3]);
      label(text, X(x) + 3 * dpr, top + (10 + 12 * (row++ % 3)) * dpr, css('--soft'), 'left');
    }
    const used = [];
    // A name stands where fewer points are: on the right, or on the left.
    const crowd = (from, to, y) => points.filter(({ cell }) => X(cell.x) > from && X(cell.x) < to && Math.abs(Y(cell.value) - y) < 14 * dpr).length;
    for (const [name, v] of spec.ceilings || []) {
      path([[left, Y(v)], [right, Y(v)]], css('--ceiling'), [7, 4]);
      if (bbox.width < 260 * dpr) continue;
      const value = `${num(v)} ${yUnit}`;
      const text = name.includes(value) ? name : `${name}: ${value}`;
      const wide = ctx.measureText(text).width + 8 * dpr;
      let y = Y(v) - 4 * dpr;
      if (y < top + 10 * dpr) y = Y(v) + 12 * dpr;
      while (used.some((other) => Math.abs(other - y) < 11 * dpr)) y += 12 * dpr;
      used.push(y);
      const isLeft = crowd(left, left + wide, y) < crowd(right - wide, right, y);
      label(text, isLeft ? left + 4 * dpr : right - 4 * dpr, y, css('--ceiling'), isLeft ? 'left' : 'right');
    }
    if (spec.floor) path(spec.floor.map(([x, y]) => [X(x), Y(y)]), css('--ceiling'), [2, 3]);
    for (const { cell, s } of points) {
      if (!u.series[s].show) continue;
      const [x, y] = [X(cell.x), Y(cell.value)];
      ctx.strokeStyle = ink(lines[s - 1].ink);
      if (cell.half_width > 0 && !scatter) {
        const [high, low] = [Y(cell.value + cell.half_width), cell.value > cell.half_width || !spec.yLog ? Y(cell.value - cell.half_width) : foot];
        if (low - high >= 3 * dpr) {
          ctx.beginPath();
          for (const end of [high, low]) { ctx.moveTo(x - 3 * dpr, end); ctx.lineTo(x + 3 * dpr, end); }
          ctx.moveTo(x, high);
          ctx.lineTo(x, low);
          ctx.stroke();
        }
      }
      if (cell.published && !scatter) {
        const [py, r] = [Y(cell.published[0]), 5 * dpr];
        ctx.beginPath();
        ctx.moveTo(x, py - r); ctx.lineTo(x + r, py); ctx.lineTo(x, py + r); ctx.lineTo(x - r, py); ctx.closePath();
        ctx.fillStyle = css('--card');
        ctx.fill();
        ctx.strokeStyle = css('--published');
        ctx.stroke();
      }
    }
    ctx.restore();
  };
  const dot = el('i', { className: 'focus', hidden: true });
  const items = points.map(({ cell, s }) => ({
    fig, run, cell, s, at: [s, scatter ? xs.indexOf(cell.x) : cell.at[1]],
    box: () => {
      const over = u.over.getBoundingClientRect();
      return { left: over.left + u.valToPos(cell.x, 'x') - 5, top: over.top + u.valToPos(cell.value, 'y') - 5, width: 10, height: 10 };
    },
    mark: (on) => {
      dot.hidden = !on;
      dot.style.transform = `translate(${u.valToPos(cell.x, 'x')}px,${u.valToPos(cell.value, 'y')}px)`;
      dot.style.setProperty('--c', `var(--s${lines[s - 1].ink % INKS})`);
    },
  }));
  const nearest = (u) => {
    let [best, least] = [null, 30];
    for (const item of items) {
      if (!u.series[item.s].show) continue;
      const far = Math.hypot(u.valToPos(item.cell.x, 'x') - u.cursor.left, u.valToPos(item.cell.value, 'y') - u.cursor.top);
      if (far < least) [best, least] = [item, far];
    }
    return best;
  };
  const u = new uPlot({
    width: Math.max(160, box.clientWidth || spec.width || 440), height: spec.height, pxAlign: 1,
    legend: { show: false },
    cursor: { y: false, points: { show: false }, drag: { x: true, y: false, dist: 5 } },
    scales: {
      x: { time: false, distr: xLog ? 3 : 1, log: 10, range: (_, low, high) => (low === xs[0] && high === xs[xs.length - 1] ? full : [low, high]) },
      y: { distr: spec.yLog ? 3 : 1, log: 10, range: (_, low, high) => (known(low) && (low > drawn[0] || high < drawn[1]) ? bounds([low, high], spec.yLog) : spec.yEnds) },
    },
    axes: [{ size: 22, ...axis(xLog, xUnit, binary, (at) => Math.max(2, Math.floor(at.width / (binary && xUnit !== 'B' ? 38 : 62)))) },
      { ...axis(spec.yLog, yUnit, false, (at) => Math.max(3, Math.floor(at.height / 34))), size: (at, values) => Math.max(24, 8 + 6.6 * Math.max(0, ...(values || []).map((v) => v.length))) }],
    series: [{}, ...lines.map((line) => ({
      label: line.name, stroke: () => ink(line.ink), width: 1.75, dash: line.ink >= INKS ? [6, 3] : undefined, spanGaps: false,
      paths: scatter ? () => null : undefined,
      points: { show: true, size: 6, width: 1.25, stroke: () => ink(line.ink), fill: () => (Math.floor(line.ink / 4) % 2 ? css('--card') : ink(line.ink)) },
    }))],
    hooks: {
      draw: [draw],
      setCursor: [(at) => {
        if (active && active.pinned) return;
        const item = at.cursor.left >= 0 ? nearest(at) : null;
        if (item) showTip(item); else hideTip();
      }],
    },
  }, [xs, ...columns], box);
  u.over.append(dot);
  u.over.addEventListener('click', () => { const item = nearest(u); if (item) showTip(item, true); });
  walk(box, items);
  charts.add(u);
  new ResizeObserver(() => requestAnimationFrame(() => {
    const width = Math.floor(box.clientWidth);
    if (width > 0 && Math.abs(width - u.width) > 1) u.setSize({ width, height: spec.height });
  })).observe(box);
  return u;
}

/** Names of lines as buttons that hide and show them. */
function lineLegend(names, drawn) {
  return el('p', { className: 'legend lines' }, names.map((name, i) => el('button', {
    type: 'button', 'aria-pressed': 'true', style: { '--c': `var(--s${i % INKS})` },
    onclick: (event) => {
      const on = event.currentTarget.getAttribute('aria-pressed') !== 'true';
      event.currentTarget.setAttribute('aria-pressed', String(on));
      for (const [u, lines] of drawn) lines.forEach((line, s) => { if (line.name === name) u.setSeries(s + 1, { show: on }); });
    },
  }, el('i', { className: i >= INKS ? 'dashed' : i >= INKS / 2 ? 'hollow' : '' }), name)));
}

const axesNote = (yUnit, yLog, xUnit) => {
  const y = axisName(yUnit) === yUnit ? yUnit : `${axisName(yUnit)}, ${yUnit}`;
  const x = xUnit === 'B' ? 'size' : axisName(xUnit) === xUnit ? xUnit : `${axisName(xUnit)}, ${xUnit}`;
  return el('p', { className: 'axes' }, el('span', {}, `↑ ${y}${yLog ? ', logarithmic' : ''}`), el('span', {}, `${x} →`));
};

function chartSpec(fig, extra) {
  const cells = fig.cells.filter(hasValue);
  const values = [...cells.map((c) => c.value), ...cells.filter((c) => c.published).map((c) => c.published[0]), ...extra].filter(known);
  const xs = cells.map((c) => c.x).filter(known);
  const yLog = isLog(values);
  return { xUnit: fig.column_axis, yUnit: fig.unit, xLog: fig.column_axis === 'B' || isLog(xs), yLog, yEnds: bounds(values, yLog), values };
}

function drawCurves(fig, run, box) {
  const ceilings = fig.ceilings || [];
  const spec = chartSpec(fig, ceilings.map((c) => c[1]));
  if (!spec.values.length) { box.append(nothing('There is no value to draw.')); return; }
  const lines = fig.rows.map((name, r) => ({ name, ink: r, cells: fig.cells.filter((c) => c.at[0] === r) }));
  const plot = el('div', { className: 'chart' });
  box.append(axesNote(spec.yUnit, spec.yLog, spec.xUnit), plot);
  const u = chart(plot, fig, run, { ...spec, lines, ceilings, marks: fig.marks, height: 212 });
  box.append(lineLegend(fig.rows, [[u, lines]]));
  const lost = fig.cells.filter((c) => hasValue(c) && spec.yLog && c.value <= 0).length;
  if (lost) box.append(nothing(`${lost} values of zero or less have no place on a logarithmic axis.`));
}

function drawPanels(fig, run, box) {
  const spec = chartSpec(fig, fig.panels.flatMap((p) => [...(p.levels || []).map((l) => l[1]), ...(p.floor || []).map((f) => f[1])]));
  if (!spec.values.length) { box.append(nothing('There is no value to draw.')); return; }
  const xs = fig.cells.filter(hasValue).map((c) => c.x);
  const nameOf = (p, r) => fig.rows[r].slice(p.name.length + 2);
  const rowsOf = (p, i) => fig.rows.map((_, r) => r).slice(p.first, (fig.panels[i + 1] || { first: fig.rows.length }).first);
  const names = [...new Set(fig.panels.flatMap((p, i) => rowsOf(p, i).map((r) => nameOf(p, r))))];
  const drawn = [];
  const grid = el('div', { className: 'panels' });
  box.append(axesNote(spec.yUnit, spec.yLog, spec.xUnit), grid);
  fig.panels.forEach((p, i) => {
    const lines = rowsOf(p, i).map((r) => ({ name: nameOf(p, r), ink: names.indexOf(nameOf(p, r)), cells: fig.cells.filter((c) => c.at[0] === r) }));
    const plot = el('div', { className: 'chart' });
    grid.append(el('div', {}, el('h4', {}, p.name), plot));
    drawn.push([chart(plot, fig, run, { ...spec, xLog: false, xEnds: [Math.min(...xs), Math.max(...xs)], lines, ceilings: p.levels, floor: p.floor, height: 140 }), lines]);
  });
  box.append(lineLegend(names, drawn));
  const levels = [...new Set(fig.panels.flatMap((p) => (p.levels || []).map(([name, v]) => `${name}, ${num(v)} ${fig.unit}`)))];
  const parts = [];
  if (levels.length) parts.push(key('line ceiling', `least by copies: ${levels.join('; ')}`));
  if (fig.panels.some((p) => p.floor)) parts.push(key('line floor', 'least for the links: bytes over the narrowest cut'));
  if (parts.length) box.append(legend(...parts));
}

/** Predicted over measured values; the line is agreement, dotted ones are 10 % off. */
function drawScatter(fig, run, box) {
  const all = fig.cells.flatMap((c) => [c.x, c.value]).filter((v) => v > 0);
  const ends = bounds(all, true);
  const lines = fig.rows.map((name, r) => ({ name, ink: r, cells: fig.cells.filter((c) => c.at[0] === r) }));
  const plot = el('div', { className: 'chart' });
  box.append(axesNote(`predicted, ${fig.unit}`, true, `${fig.column_axis}, ${fig.unit}`), plot);
  const u = chart(plot, fig, run, { lines, xUnit: fig.unit, yUnit: fig.unit, xLog: true, yLog: true, xEnds: ends, yEnds: ends, scatter: true, height: 380 });
  box.append(lineLegend(fig.rows, [[u, lines]]), legend('dotted lines are 10 % off'));
}

/** How many values have which error, in steps of a percent; larger ones are in the outermost bars. */
function drawErrors(fig, run, box) {
  const bins = new Map();
  for (const cell of fig.cells) {
    const bin = Math.min(10, Math.max(-10, Math.round(cell.value)));
    if (!bins.has(bin)) bins.set(bin, new Array(fig.rows.length).fill(0));
    bins.get(bin)[cell.at[0]] += 1;
  }
  const sum = (list) => (list || []).reduce((a, b) => a + b, 0);
  const most = Math.max(1, ...[...bins.values()].map(sum));
  const bar = (bin) => el('div', {}, el('small', {}, sum(bins.get(bin)) || ''),
    (bins.get(bin) || []).map((n, r) => n > 0 && el('i', { style: { height: `${n / most * 9}rem`, '--c': `var(--s${r % INKS})` } })),
    el('small', {}, bin === 10 ? '≥10' : bin === -10 ? '≤−10' : String(bin).replace('-', '−')));
  const list = Array.from({ length: 21 }, (_, i) => i - 10);
  box.append(el('div', { className: 'histogram' }, list.map(bar)), legend(`predicted above or below what was ${fig.column_axis}, in percent`, ...fig.rows.map((name, r) => key('part', name, { '--c': `var(--s${r % INKS})` }))));
}

const DRAW = { matrix: drawMatrix, curves: drawCurves, bars: drawBars, sheet: drawSheet, stacks: drawStacks, panels: drawPanels, gaps: drawGaps, scatter: drawScatter, errors: drawErrors };
