// The live view of the engine: what GET /stats says, once a second while the view is open.
import { getJson } from './api.js';
import { element, sparkline } from './dom.js';

const HISTORY = 120;
const POOLS = { pages: 'KV pages', state_slots: 'State slots', host_pages: 'Host pages', host_state_slots: 'Host states' };
const MEMORY = { weights: 'Weights', tables: 'Rotary tables', kv_cache: 'KV cache', state: 'States', workspace: 'Workspace', images: 'Images', driver: 'Driver',
                 free: 'Not used', host: 'Host tier' };

export function bytesText(bytes) {
  const units = ['B', 'KB', 'MB', 'GB', 'TB'];
  let k = 0;
  while (bytes >= 999.5 && k < units.length - 1) { bytes /= 1000; k++; }
  return `${bytes >= 100 || k === 0 ? Math.round(bytes) : bytes.toFixed(1)} ${units[k]}`;
}

const count = (n) => Math.round(n).toLocaleString('en');

function duration(s) {
  if (s < 90) return `${Math.round(s)} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  return s < 129600 ? `${(s / 3600).toFixed(1)} h` : `${(s / 86400).toFixed(1)} days`;
}

function card(name, ...children) {
  return element('section', { class: 'card' }, element('h3', {}, name), ...children);
}

function figure(value, words) {
  return element('div', { class: 'figure' }, element('b', {}, value), element('span', {}, words));
}

function bar(share, label) {
  const fill = element('span');
  fill.style.width = `${Math.min(100, Math.max(0, share * 100)).toFixed(2)}%`;
  return element('div', { class: 'meter', role: 'meter', 'aria-label': label, 'aria-valuemin': '0',
                          'aria-valuemax': '100', 'aria-valuenow': String(Math.round(share * 100)) }, fill);
}

function poolRow(pool) {
  const share = pool.total > 0 ? pool.used / pool.total : 0;
  const name = POOLS[pool.name] || pool.name;
  return element('div', { class: 'pool' }, element('span', {}, name), bar(share, name),
                 element('span', { class: 'number' }, pool.total > 0 ? `${count(pool.used)} of ${count(pool.total)}` : 'not used yet'));
}

function memoryMap(parts) {
  const device = parts.filter((part) => part.place !== 'host' && part.bytes > 0);
  const total = device.reduce((sum, part) => sum + part.bytes, 0);
  const map = element('div', { class: 'map', role: 'img', 'aria-label': 'Memory map' },
    ...device.map((part) => {
      const piece = element('span', { class: 'part-' + part.name, title: `${MEMORY[part.name] || part.name}: ${bytesText(part.bytes)}` });
      piece.style.flexGrow = String(Math.max(part.bytes / total, 0.004));
      return piece;
    }));
  const legend = element('ul', { class: 'legend' },
    ...parts.filter((part) => part.bytes > 0).map((part) => element('li', {},
      element('i', { class: 'part-' + part.name }), MEMORY[part.name] || part.name,
      element('span', { class: 'number' }, bytesText(part.bytes)))));
  return element('div', {}, map, legend);
}

function requestTable(requests) {
  if (!requests.length) return element('p', { class: 'empty' }, 'No request is running.');
  const row = (tag, texts) => element('tr', {}, ...texts.map((text) => element(tag, {}, text)));
  return element('table', {},
    element('thead', {}, row('th', ['API', 'Since', 'Generated'])),
    element('tbody', {}, ...requests.map((r) => row('td',
      [r.api, duration(r.seconds), r.generated_tokens ? `${count(r.generated_tokens)} tokens` : 'none yet']))));
}

export class EngineView {
  constructor(root) {
    this.root = root;
    this.speeds = [];
    this.timer = null;
    this.last = null;
  }

  open() {
    if (this.timer !== null) return;
    const tick = async () => {
      try {
        this.show(await getJson('/stats'));
      } catch (error) {
        this.root.replaceChildren(element('p', { class: 'note' }, error.message));
      }
      if (this.timer !== null) this.timer = setTimeout(tick, 1000);
    };
    this.timer = 0;
    tick();
  }

  close() {
    clearTimeout(this.timer);
    this.timer = null;
    this.last = null;
  }

  /// Tokens a second since the last look.
  speed(stats) {
    const now = performance.now();
    let speed = 0;
    if (this.last) speed = Math.max(0, (stats.tokens.generated - this.last.generated) / ((now - this.last.at) / 1000));
    if (this.last) this.speeds.push(speed);
    if (this.speeds.length > HISTORY) this.speeds.shift();
    this.last = { at: now, generated: stats.tokens.generated };
    return speed;
  }

  show(stats) {
    const speed = this.speed(stats);
    const { sequences, tokens, prefix, passes } = stats;
    const rate = prefix.lookup_tokens > 0 ? prefix.hit_tokens / prefix.lookup_tokens : null;
    const most = Math.max(...this.speeds, 1);
    this.root.replaceChildren(
      element('header', { class: 'engine-head' },
        element('h2', {}, 'Engine'),
        element('span', { class: 'pill ' + (stats.state === 'awake' ? 'good' : '') }, stats.state),
        element('span', { class: 'hint' }, `${stats.model} · ${stats.backend} · up ${duration(stats.uptime_seconds)} · Nibble ${stats.version}`)),
      element('div', { class: 'cards' },
        card('Sequences', element('div', { class: 'figures-row' },
          figure(count(sequences.decode), 'generating'), figure(count(sequences.prefill), 'reading'),
          figure(count(sequences.waiting), 'waiting'), figure(count(sequences.swapped), 'on the host'))),
        card('Generated tokens', element('div', { class: 'figures-row' },
          figure(count(speed), 'a second now'), figure(count(tokens.generated), 'in all')), sparkline(this.speeds, most)),
        card('Prefix cache', element('div', { class: 'figures-row' },
          figure(rate === null ? '–' : `${Math.round(rate * 100)} %`, 'of prompt tokens found'),
          figure(count(prefix.hit_tokens), 'not computed again')), bar(rate || 0, 'Prefix cache')),
        card('Passes', element('div', { class: 'figures-row' },
          figure(count(passes.count), 'in all'), figure(passes.drafted ? `${Math.round(100 * passes.drafts_right / passes.drafted)} %` : '–', 'of drafts right'),
          figure(`${count(stats.first_token_ms)} ms`, 'to a first token'))),
        element('section', { class: 'card wide' }, element('h3', {}, 'Memory'), memoryMap(stats.memory)),
        element('section', { class: 'card wide' }, element('h3', {}, 'Pools'),
                element('div', { class: 'pools' }, ...stats.pools.map(poolRow))),
        element('section', { class: 'card wide' }, element('h3', {}, 'Requests'), requestTable(stats.requests))));
  }
}
