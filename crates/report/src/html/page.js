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

  // The contents follow the reader.
  const links = new Map($$('nav a').map((a) => [a.hash.slice(1), a]));
  const seen = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      const link = links.get(target.id);
      if (!isIntersecting || !link) continue;
      for (const other of links.values()) other.removeAttribute('aria-current');
      link.setAttribute('aria-current', 'true');
    }
  }, { rootMargin: '-10% 0px -75% 0px' });
  for (const id of links.keys()) {
    const target = document.getElementById(id);
    if (target) seen.observe(target);
  }
})();
