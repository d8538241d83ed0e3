// Refreshes the parts of a page that change, and adds calls to the log as they end. Without it, a reload does the same.

const EVERY = 2000;
const MOST_ROWS = 200;
const status = document.getElementById('status');

function say(text) {
  if (status && status.textContent !== text) status.textContent = text;
}

// Replaces the parts marked `data-refresh`, but never one that a person is in.
async function refresh() {
  const parts = document.querySelectorAll('[data-refresh]');
  if (document.hidden || parts.length === 0) return;
  let response;
  try {
    const from = document.querySelector('[data-refresh-from]')?.dataset.refreshFrom ?? location.href;
    response = await fetch(from, { headers: { accept: 'text/html' } });
  } catch {
    say('The server does not answer. This page shows the last state.');
    return;
  }
  if (response.redirected && new URL(response.url).pathname === '/login') {
    say('You are signed out: reload the page to sign in.');
    return;
  }
  if (!response.ok) {
    say(`The server answers with status ${response.status}.`);
    return;
  }
  say('');
  const fresh = new DOMParser().parseFromString(await response.text(), 'text/html');
  for (const part of parts) {
    const next = fresh.getElementById(part.id);
    if (!next || part.contains(document.activeElement) || part.innerHTML === next.innerHTML) continue;
    part.replaceWith(document.adoptNode(next));
  }
}

function cell(row, tag, text, name) {
  const made = row.appendChild(document.createElement(tag));
  if (name) made.className = name;
  made.textContent = text;
  return made;
}

function span(us) {
  if (us < 1000) return `${us} µs`;
  return us < 1_000_000 ? `${Math.floor(us / 1000)} ms` : `${(us / 1_000_000).toFixed(1)} s`;
}

function callRow(call) {
  const row = document.createElement('tr');
  const time = cell(row, 'td', '').appendChild(document.createElement('time'));
  time.dateTime = call.time;
  time.textContent = call.time.slice(11, 19);
  const head = cell(row, 'th', '');
  head.scope = 'row';
  const link = head.appendChild(document.createElement('a'));
  link.href = `/calls/${call.number}`;
  link.textContent = call.tool;
  cell(row, 'td', call.outcome, call.outcome === 'ok' ? 'ok' : 'failed');
  cell(row, 'td', span(call.duration_us), 'number');
  cell(row, 'td', call.session ?? '–');
  return row;
}

// Rows are added once per frame, so that many calls do not stop the page.
function follow(log) {
  let waiting = [];
  const add = (row) => {
    if (waiting.push(row) > 1) return;
    requestAnimationFrame(() => {
      log.prepend(...waiting.slice(-MOST_ROWS).reverse());
      waiting = [];
      while (log.rows.length > MOST_ROWS) log.deleteRow(-1);
    });
  };
  let source;
  const open = () => {
    source = new EventSource(log.dataset.tail);
    source.addEventListener('call', (event) => add(callRow(JSON.parse(event.data))));
    source.addEventListener('lost', (event) => {
      const row = document.createElement('tr');
      const note = cell(row, 'td', `${JSON.parse(event.data).calls} calls are not shown here: this page is too slow.`, 'quiet');
      note.colSpan = 5;
      add(row);
    });
    source.onopen = () => say('');
    source.onerror = () => say(source.readyState === EventSource.CLOSED
      ? 'The log is not followed: too many pages do, or you are signed out. Reload to try again.'
      : 'Connecting to the log again…');
  };
  open();
  const box = document.getElementById('tail-on');
  if (!box) return;
  box.closest('p').hidden = false;
  box.addEventListener('change', () => (box.checked ? open() : source.close()));
}

setInterval(refresh, EVERY);
const log = document.querySelector('[data-tail]');
if (log) follow(log);
