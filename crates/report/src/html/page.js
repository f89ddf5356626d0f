// Comfort only: details on hover and by arrow keys, copying, filtering. The page reads without it.
(() => {
  'use strict';
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  document.documentElement.classList.add('scripted');

  // Details move from the browser's own tool tip into ours.
  for (const el of $$('.tip')) {
    const title = el instanceof SVGElement ? el.querySelector('title') : null;
    el.dataset.tip = title ? title.textContent : el.getAttribute('title') || '';
    if (title) title.remove(); else el.removeAttribute('title');
  }

  const tip = document.getElementById('tip');
  let shown = null;

  function fill(text) {
    const [heading, ...lines] = text.split('\n');
    tip.replaceChildren();
    tip.appendChild(document.createElement('b')).textContent = heading;
    const list = tip.appendChild(document.createElement('dl'));
    for (const line of lines) {
      const at = line.indexOf(': ');
      list.appendChild(document.createElement('dt')).textContent = line.slice(0, at);
      const words = list.appendChild(document.createElement('dd'));
      words.textContent = line.slice(at + 2);
      if (line.startsWith('case: ')) words.className = 'case';
    }
  }

  function place(el) {
    const box = el.getBoundingClientRect();
    const gap = 8;
    const left = Math.min(Math.max(gap, box.left + box.width / 2 - tip.offsetWidth / 2),
      innerWidth - tip.offsetWidth - gap);
    const below = box.bottom + gap;
    const top = below + tip.offsetHeight < innerHeight ? below : box.top - tip.offsetHeight - gap;
    tip.style.left = `${Math.max(gap, left)}px`;
    tip.style.top = `${Math.max(gap, top)}px`;
  }

  function show(el) {
    if (shown === el) return;
    hide();
    shown = el;
    el.classList.add('on');
    fill(el.dataset.tip);
    tip.hidden = false;
    place(el);
  }

  function hide() {
    if (!shown) return;
    shown.classList.remove('on');
    shown = null;
    tip.hidden = true;
  }

  document.addEventListener('mouseover', (event) => {
    const el = event.target.closest('.tip');
    if (el) show(el); else hide();
  });
  document.addEventListener('scroll', hide, { passive: true });
  document.addEventListener('keydown', (event) => { if (event.key === 'Escape') hide(); });

  // Arrow keys walk through the cells of a figure.
  for (const figure of $$('[data-tips]')) {
    const columns = Number(figure.dataset.tips) || 1;
    figure.tabIndex = 0;
    figure.addEventListener('blur', hide);
    figure.addEventListener('keydown', (event) => {
      const rows = figure.matches('.heat') ? columns : 1;
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: rows, ArrowUp: -rows }[event.key];
      if (!step) return;
      // Blank cells hold their place, so that up and down stay in their column.
      const cells = figure.matches('.heat') ? $$('tbody td', figure)
        : $$('.tip', figure).filter((el) => el.getClientRects().length);
      let at = cells.indexOf(shown);
      at = at < 0 ? (step > 0 ? -1 : cells.length) + (Math.abs(step) > 1 ? Math.sign(step) : step) : at + step;
      while (cells[at] && !cells[at].dataset.tip) at += step;
      if (cells[at]) show(cells[at]);
      event.preventDefault();
    });
  }

  function rowsAsText(table) {
    return $$('tr', table).map((row) => $$('th,td', row).map((c) => c.textContent).join('\t')).join('\n');
  }

  const sources = {
    command: (button) => button.previousElementSibling.textContent,
    action: (button) => {
      const text = button.previousElementSibling;
      return $$('code', text).map((c) => c.textContent).join('\n') || text.textContent;
    },
    table: (button) => rowsAsText(button.closest('details').querySelector('table')),
    cases: (button) => $$('td.case', button.closest('details')).map((c) => c.textContent).filter(Boolean).join('\n'),
  };

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // Pages opened from a file may lack the clipboard interface.
      const area = document.body.appendChild(document.createElement('textarea'));
      area.value = text;
      area.select();
      const done = document.execCommand('copy');
      area.remove();
      return done;
    }
  }

  document.addEventListener('click', async (event) => {
    const button = event.target.closest('[data-copy]');
    if (!button) return;
    const words = button.textContent;
    const done = await copy(sources[button.dataset.copy](button));
    button.textContent = done ? 'Copied' : 'Not allowed here';
    setTimeout(() => { button.textContent = words; }, 1500);
  });

  for (const field of $$('[data-filter]')) {
    const root = field.closest('.absences');
    const words = root.querySelector('[data-filtered]');
    field.addEventListener('input', () => {
      const wanted = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      const fits = (text) => wanted.every((w) => text.toLowerCase().includes(w));
      let total = 0;
      for (const group of $$('.group', root)) {
        const why = group.querySelector('summary').textContent;
        let kept = 0;
        for (const row of $$('tbody tr', group)) {
          row.hidden = !fits(`${why} ${row.textContent}`);
          kept += row.hidden ? 0 : 1;
        }
        group.hidden = kept === 0;
        group.open = wanted.length > 0 && kept > 0 && kept <= 40;
        total += kept;
      }
      words.textContent = wanted.length ? `${total} left` : '';
    });
  }

  // Anchors open what they are in: folded figures, and tabs of pair maps.
  function choose(pane) {
    const tabs = pane.closest('.tabs');
    for (const name of pane.classList) {
      const key = /^p([md]\d+)$/.exec(name);
      const button = key && tabs.querySelector(`input.${key[1]}`);
      if (button) button.checked = true;
    }
  }

  function reveal(target) {
    for (let el = target; el; el = el.parentElement) {
      if (el.matches('.pane')) choose(el);
      if (el.matches('details')) el.open = true;
      if (el.matches('article.figure')) el.querySelector('details').open = true;
    }
  }

  function follow() {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    reveal(target);
    target.scrollIntoView();
  }
  addEventListener('hashchange', follow);
  document.addEventListener('click', (event) => {
    const link = event.target.closest('a[href^="#"]');
    // The address stays the same on a second click.
    if (link && link.hash === location.hash) follow();
  });
  follow();

  // Print everything but the tables of numbers.
  let folded = [];
  addEventListener('beforeprint', () => {
    folded = $$('article.figure>details:not([open]),.more:not([open]),.group:not([open])');
    for (const el of folded) el.open = true;
  });
  addEventListener('afterprint', () => { for (const el of folded) el.open = false; });

  // The contents follow the reader.
  const nav = document.querySelector('nav');
  const links = new Map($$('nav a').map((a) => [a.hash.slice(1), a]));
  const places = [...links.keys()].map((id) => document.getElementById(id)).filter(Boolean);
  let current = null;
  function mark() {
    const line = innerHeight * 0.3;
    let at = places[0];
    for (const place of places) {
      const box = place.getBoundingClientRect();
      if (box.height && box.top <= line) at = place;
    }
    if (innerHeight + scrollY >= document.documentElement.scrollHeight - 2) at = places.at(-1);
    const link = at && links.get(at.id);
    if (!link || link === current) return;
    if (current) current.removeAttribute('aria-current');
    current = link;
    link.setAttribute('aria-current', 'true');
    const box = link.getBoundingClientRect();
    const frame = nav.getBoundingClientRect();
    if (nav.scrollHeight > nav.clientHeight && (box.top < frame.top + 60 || box.bottom > frame.bottom - 60)) {
      nav.scrollTop += box.top - frame.top - frame.height / 2;
    }
  }
  if (nav) {
    let waiting = false;
    const soon = () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => { waiting = false; mark(); });
    };
    addEventListener('scroll', soon, { passive: true });
    addEventListener('resize', soon, { passive: true });
    mark();
  }

  // One filter over figures, rows and cells. A term that ends in a digit does not match a longer number.
  const find = document.querySelector('[data-find]');
  const found = document.querySelector('[data-found]');
  const CELLS = '.heat td[data-tip],.bars tr[data-tip],.chart .tip,.rows tbody tr';
  function matcher(text) {
    const escaped = (word) => word.replace(/[.*+?^${}()|[\]\\]/g, '\\$&') + (/\d$/.test(word) ? '(?!\\d)' : '');
    const terms = text.split(/\s+/).filter(Boolean).map((word) => new RegExp(escaped(word), 'i'));
    return terms.length ? (...texts) => terms.every((term) => texts.some((t) => term.test(t))) : null;
  }
  function filter() {
    const fits = matcher(find.value);
    let cells = 0;
    let figures = 0;
    for (const figure of $$('article.figure')) {
      const title = `${figure.querySelector('summary').textContent} ${figure.parentElement.id}`;
      const whole = !fits || fits(title);
      let kept = 0;
      for (const el of $$(CELLS, figure)) {
        const pane = el.closest('.pane');
        const heading = pane ? pane.querySelector('h4').textContent : '';
        const fit = whole || fits(title, heading, el.dataset.tip || el.textContent);
        el.classList.toggle('dim', !fit);
        if (el.matches('.rows tr')) el.hidden = !fit; else kept += fit ? 1 : 0;
      }
      figure.hidden = !whole && kept === 0;
      const link = links.get(figure.id);
      if (link) link.parentElement.hidden = figure.hidden;
      const fold = figure.querySelector('details');
      if (fits && !figure.hidden) {
        if (fold.dataset.was === undefined) fold.dataset.was = fold.open;
        fold.open = true;
        cells += kept;
        figures += 1;
      } else if (fold.dataset.was !== undefined) {
        fold.open = fold.dataset.was === 'true';
        delete fold.dataset.was;
      }
    }
    for (const suite of $$('section.suite')) {
      suite.hidden = $$('article.figure', suite).every((figure) => figure.hidden);
      const link = links.get(suite.id);
      if (link) link.closest('li').hidden = suite.hidden;
    }
    found.textContent = fits ? `${cells} cells in ${figures} figures` : '';
  }
  if (find) {
    let timer = 0;
    find.addEventListener('input', () => { clearTimeout(timer); timer = setTimeout(filter, 120); });
    find.addEventListener('keydown', (event) => {
      if (event.key !== 'Escape') return;
      find.value = '';
      filter();
      find.blur();
    });
  }

  // Jump keys.
  function jump(step) {
    const all = $$('article.figure').filter((figure) => figure.getClientRects().length);
    const line = 90;
    const next = step > 0
      ? all.find((figure) => figure.getBoundingClientRect().top > line + 5)
      : all.findLast((figure) => figure.getBoundingClientRect().top < line - 30);
    if (next) next.scrollIntoView();
  }
  const keys = {
    '/': () => find && find.focus(),
    j: () => jump(1),
    k: () => jump(-1),
    t: () => scrollTo(0, 0),
    o: () => {
      const at = $$('article.figure').find((figure) => figure.getBoundingClientRect().bottom > 90);
      if (at) at.querySelector('details').open = !at.querySelector('details').open;
    },
  };
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches('input,textarea')) return;
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });

  // Wide tables say that they go on to the right.
  const cut = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const more = target.scrollWidth - target.clientWidth > 8;
      target.classList.toggle('cut-right', more);
      if (more) target.dataset.more = 'scroll for more \u2192';
    }
  });
  for (const box of $$('.scroll')) cut.observe(box);
})();
