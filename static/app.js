// Keeps pages up to date and lets the keyboard drive them. Every page does the same without it, after a reload.
(() => {
  'use strict';
  const one = (selector, root = document) => root.querySelector(selector);
  const all = selector => [...document.querySelectorAll(selector)];
  const make = (tag, kind, text) => Object.assign(document.createElement(tag), { className: kind, textContent: text });
  const now = () => performance.now();

  // Toasts

  function toast(text, link) {
    if (all('.toast').some(shown => shown.dataset.said === text)) return;
    const line = make('p', 'toast', link ? `${text} · ` : text);
    line.dataset.said = text;
    if (link) line.append(Object.assign(make('a', '', link), { href: location.pathname + location.search }));
    const close = make('button', 'btn quiet', 'Dismiss');
    close.onclick = () => line.remove();
    line.append(close);
    one('#toasts').append(line);
  }
  const untoast = text => all('.toast').filter(shown => shown.dataset.said === text).forEach(shown => shown.remove());

  // Morphing: what the reader did to the page stays, and rows stay where they are

  Object.assign(Idiomorph.defaults.callbacks, {
    beforeAttributeUpdated(name, node) {
      if (name === 'open') return !node.matches('details, dialog');
      if (name === 'checked' || name === 'selected') return false;
      return name !== 'value' || !node.matches('textarea, input:not([type=hidden], [type=checkbox], [type=radio])');
    },
    beforeNodeMorphed(shown, fresh) {
      if (shown.nodeName === 'TBODY' && shown.closest('[data-keep-order]')) keepOrder(shown, fresh);
    },
  });

  function keepOrder(shown, fresh) {
    const before = [...shown.rows].map(row => row.id);
    const rows = [...fresh.rows];
    const place = row => (before.indexOf(row.id) + 1) || Infinity;
    const wanted = rows.map((row, at) => [place(row), at, row]).sort(([a, i], [b, j]) => (a === b ? i - j : a - b)).map(([, , row]) => row);
    if (wanted.every((row, at) => row === rows[at])) return untoast('Order changed');
    fresh.append(...wanted);
    toast('Order changed', 'Refresh');
  }

  // Errors: said in a toast; a part of a page never becomes a whole page

  const isLive = node => node.matches('[hx-trigger^="sse:"]');
  const asksAgain = node => node.matches('[hx-trigger^="every"]');
  addEventListener('htmx:beforeRequest', event => {
    if ((paused || document.hidden) && asksAgain(event.detail.elt)) event.preventDefault();
  });
  addEventListener('htmx:beforeSwap', event => {
    const { detail } = event;
    if (paused && (isLive(detail.elt) || asksAgain(detail.elt))) detail.shouldSwap = false;
    if (detail.xhr.status < 400) return;
    const error = one('#error', new DOMParser().parseFromString(detail.xhr.responseText, 'text/html'));
    if (!error && detail.shouldSwap) return; // a form, with what is wrong with it
    detail.shouldSwap = false;
    const said = error ? [...error.children].slice(0, -1).map(part => part.textContent) : [`The server answered ${detail.xhr.status}.`];
    toast(said.join(' · '));
    if (isLive(detail.elt)) again(hintOf(detail.elt));
  });
  addEventListener('htmx:sendError', ({ detail: { elt } }) => {
    // What asks by itself asks again by itself; the chip says since when it got no answer.
    if (isLive(elt)) again('all');
    else if (!asksAgain(elt)) toast('The server does not answer.');
  });

  // Live: hints name what changed; regions that wait for it are fetched and morphed in

  const hintOf = region => region.getAttribute('hx-trigger').slice(4);
  const regions = () => all('[hx-trigger^="sse:"]');
  const { events } = document.body.dataset;
  const QUIET = 2000, SILENT = 11000, ANSWER = 4000, HIDDEN = 10000, LOST = 2000, REFUSED = 30000;
  const changed = new Set();
  let source, tries = 0, lost = false, over = false, paused = false, asleep = false, clock = '';
  let heardAt = now(), askedAt = 0, fetchedAt = -QUIET, flushing, retrying, leaving;

  function hangUp() {
    clearTimeout(retrying);
    retrying = 0;
    source?.close();
  }

  function connect() {
    hangUp();
    if (over) return;
    // What happened before the first connection is told by the page's own mark; after a loss everything is fetched.
    const opened = source = new EventSource(lost ? '/events' : events);
    askedAt = now();
    attune();
    opened.onerror = () => {
      if (opened !== source) return;
      // Refused, not lost: perhaps the session is over. Fetching tells, and leads to the sign-in. Where no place is free, asking often
      // frees none.
      const refused = opened.readyState === EventSource.CLOSED;
      if (refused && tries === 1) again('all');
      hangUp();
      lost = true;
      retrying = setTimeout(connect, Math.min(400 * 2 ** tries++, refused ? REFUSED : LOST) * (.75 + Math.random() / 2));
    };
  }

  // A browser gives one host six connections over HTTP/1.1, to all tabs together: one that nobody looks at holds none.
  function attend() {
    clearTimeout(leaving);
    if (document.hidden) leaving = setTimeout(() => { asleep = true; hangUp(); }, HIDDEN);
    else if (asleep) wake();
    else flushSoon();
  }
  function wake() {
    asleep = false;
    lost = true;
    tries = 0;
    connect();
    paint();
  }

  // Regions may come with a part of the page; listening twice to one name is once.
  const attune = () => ['all', 'beat', 'signed-out', ...regions().map(hintOf)].forEach(name => source.addEventListener(name, heard));

  function heard({ type, data }) {
    heardAt = now();
    clock = new Date(+data).toISOString().slice(11, 19);
    if (lost) changed.add('all');
    tries = 0;
    lost = false;
    if (type === 'signed-out') {
      over = true;
      source.close();
      toast('You are signed out', 'Sign in');
    } else if (type !== 'beat') changed.add(type);
    flushSoon();
    paint();
  }

  function flushSoon(wait = 200) {
    if (flushing || paused || document.hidden || !changed.size) return;
    flushing = setTimeout(flush, Math.max(wait, fetchedAt + QUIET - now()));
  }
  function again(hint) {
    changed.add(hint);
    setTimeout(flushSoon, 5000);
  }

  function flush() {
    flushing = 0;
    if (paused || document.hidden) return;
    const due = regions().filter(region => changed.has('all') || changed.has(hintOf(region)));
    changed.clear();
    fetchedAt = now();
    for (const [first, ...others] of Map.groupBy(due, region => region.getAttribute('hx-get')).values()) {
      // One request brings all regions of one address.
      if (others.length) first.setAttribute('hx-select-oob', others.map(other => `#${other.id}:morph`).join());
      htmx.trigger(first, `sse:${hintOf(first)}`);
    }
  }

  // The word is read out when it changes; the time beside it is not.
  function paint() {
    const silent = now() - heardAt;
    const stale = silent > SILENT;
    if (!clock && !stale && !paused) return;
    const word = over ? 'Signed out' : paused ? 'Paused' : stale ? 'Stale' : 'Live';
    const chip = one('#chip');
    if (chip.firstElementChild?.textContent !== word) {
      const beside = make('span', '', '');
      beside.setAttribute('aria-hidden', 'true');
      chip.replaceChildren(make('b', '', word), beside);
      chip.className = `chip ${word === 'Live' ? '' : word === 'Paused' ? 'paused' : 'stale'}`;
    }
    chip.lastElementChild.textContent = word === 'Live' ? ` · ${clock} UTC` : word === 'Stale' ? ` ${Math.round(silent / 1000)} s` : '';
  }

  function tick() {
    const waits = heardAt > askedAt ? now() - heardAt > SILENT : now() - askedAt > ANSWER;
    if (waits && !over && !asleep && !retrying) {
      // The other end may be gone without a word.
      lost = true;
      connect();
    }
    attune();
    paint();
  }

  if (events) {
    const pause = one('#pause');
    pause.hidden = false;
    pause.onclick = () => {
      paused = !paused;
      pause.textContent = paused ? 'Resume' : 'Pause';
      if (!paused) changed.add('all');
      flushSoon(0);
      paint();
    };
    connect();
    attend();
    setInterval(tick, 1000);
    addEventListener('visibilitychange', attend);
    addEventListener('pagehide', hangUp);
    addEventListener('pageshow', ({ persisted }) => { if (persisted) wake(); });
  }

  // Menu and keys

  const menu = one('.menu');
  addEventListener('click', ({ target }) => { if (!menu.contains(target)) menu.open = false; });
  const keys = one('#keys'), show = one('#show-keys');
  if (show) {
    show.hidden = false;
    show.onclick = () => {
      menu.open = false;
      keys.showModal();
    };
  }

  const GO = { o: '/', m: '/messages', r: '/replays', s: '/settings' };
  let goUntil = 0;
  function step(by) {
    const here = document.activeElement;
    const rows = [...(here.closest('main table') ?? one('main table:has(tbody a)'))?.tBodies[0].rows ?? []].filter(row => one('a', row));
    const at = rows.indexOf(here.closest('tr'));
    const row = rows[at < 0 ? 0 : Math.min(Math.max(at + by, 0), rows.length - 1)];
    if (row) one('a', row).focus();
  }
  function press(key) {
    if (now() < goUntil && GO[key]) return location.assign(GO[key]);
    goUntil = key === 'g' ? now() + 1500 : 0;
    if (key === '?') keys.showModal();
    else if (key === '/') (one('main input[type=search]') ?? one('.find input')).focus();
    else if (key === 'j') step(1);
    else if (key === 'k') step(-1);
    else if (key === 'x') one('input[type=checkbox]', document.activeElement.closest('tr') ?? document.createElement('tr'))?.click();
    else return false;
  }
  addEventListener('keydown', event => {
    const { key, target } = event;
    if (key === 'Escape' && menu.open) {
      menu.open = false;
      one('summary', menu).focus();
    }
    if (!keys || 'noKeys' in document.body.dataset || event.ctrlKey || event.metaKey || event.altKey || event.isComposing || one('dialog[open]')) return;
    if (target.closest('select, textarea, [contenteditable], input:not([type=checkbox], [type=radio])')) return;
    if (press(key) !== false) event.preventDefault();
  });
})();
