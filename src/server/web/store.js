// Conversations: trees of messages, kept in this browser's IndexedDB and nowhere else. A message may
// have several answers and several wordings; `picks` says which child is shown. No DOM here.

const DATABASE = 'nibble';
const STORE = 'conversations';
const NODES_MAX = 20000;
const TEXT_MAX = 8e6;
const PICTURE_MAX = 28e6;  // 20 MiB in base64

export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(9));
  return [...bytes].map((b) => b.toString(36).padStart(2, '0')).join('').slice(0, 16);
}

const ROOT = 'root';

/// A message as it is kept; an answer that still runs is one that was stopped here.
function keptNode(node) {
  if (!node.live) return node;
  const { live, ...rest } = node;
  return { ...rest, finish: 'stopped' };
}

export class Conversation {
  constructor(data = {}) {
    this.id = data.id || newId();
    this.title = data.title || '';
    this.created = data.created || Date.now();
    this.updated = data.updated || this.created;
    this.settings = data.settings || {};
    this.nodes = new Map();
    this.picks = new Map(Object.entries(data.picks || {}));
    this.children = new Map([[ROOT, []]]);
    for (const node of data.nodes || []) this.insert({ ...node });
  }

  insert(node) {
    this.nodes.set(node.id, node);
    this.children.set(node.id, []);
    const above = this.children.get(node.parent || ROOT);
    if (above) above.push(node.id);
    return node;
  }

  /// A new message below `parent` (null: the first), which is shown from now on.
  add(parent, fields) {
    const node = this.insert({ id: newId(), parent, created: Date.now(), content: '', ...fields });
    this.picks.set(parent || ROOT, node.id);
    this.updated = Date.now();
    return node;
  }

  siblings(node) { return this.children.get(node.parent || ROOT); }

  /// Shows the sibling `step` places on.
  turn(node, step) {
    const all = this.siblings(node);
    const next = all[all.indexOf(node.id) + step];
    if (next) this.picks.set(node.parent || ROOT, next);
  }

  /// The messages shown, from the first on.
  path() {
    const shown = [];
    let at = ROOT;
    for (;;) {
      const below = this.children.get(at) || [];
      if (!below.length) return shown;
      const picked = this.picks.get(at);
      at = below.includes(picked) ? picked : below[below.length - 1];
      shown.push(this.nodes.get(at));
    }
  }

  /// The messages from the first to `id`.
  pathTo(id) {
    const up = [];
    for (let node = this.nodes.get(id); node; node = this.nodes.get(node.parent)) up.push(node);
    return up.reverse();
  }

  data() {
    return { id: this.id, title: this.title, created: this.created, updated: this.updated,
             settings: this.settings, picks: Object.fromEntries(this.picks),
             nodes: [...this.nodes.values()].map(keptNode) };
  }
}

const isText = (value) => typeof value === 'string' && value.length <= TEXT_MAX;
const isPicture = (value) => typeof value === 'string' && value.length <= PICTURE_MAX;
const isId = (value) => typeof value === 'string' && /^[\w-]{1,64}$/.test(value);

function soundNode(node, known) {
  if (typeof node !== 'object' || node === null || !isId(node.id) || known.has(node.id)) return null;
  if (node.parent !== null && !known.has(node.parent)) return null;
  if (!['user', 'assistant', 'tool'].includes(node.role) || !isText(node.content)) return null;
  const kept = { id: node.id, parent: node.parent, role: node.role, content: node.content,
                 created: Number(node.created) || 0 };
  for (const name of ['reasoning', 'error', 'model', 'call_id', 'finish'])
    if (isText(node[name])) kept[name] = node[name];
  for (const name of ['reasoning_ms', 'first_ms', 'total_ms', 'rate'])
    if (Number.isFinite(node[name])) kept[name] = node[name];
  if (Array.isArray(node.images))
    kept.images = node.images.filter((x) => isPicture(x) && /^data:image\/(png|jpeg|webp|gif);base64,/.test(x));
  if (Array.isArray(node.calls))
    kept.calls = node.calls.filter((call) => call && isText(call.id) && isText(call.name) && isText(call.arguments))
      .map(({ id, name, arguments: words }) => ({ id, name, arguments: words }));
  if (node.usage && typeof node.usage === 'object') {
    kept.usage = {};
    for (const name of ['prompt_tokens', 'completion_tokens', 'total_tokens', 'cached_tokens'])
      if (Number.isFinite(node.usage[name])) kept.usage[name] = node.usage[name];
  }
  return kept;
}

/// Conversations of a file that export() wrote; anything else is refused by an Error.
export function readExport(text) {
  let json;
  try {
    json = JSON.parse(text);
  } catch {
    throw new Error('this file is no JSON');
  }
  if (!json || json.format !== 'nibble-conversations' || !Array.isArray(json.conversations))
    throw new Error('this file holds no conversations of Nibble (expected "format": "nibble-conversations")');
  return json.conversations.slice(0, 5000).map((given, k) => {
    if (!given || !Array.isArray(given.nodes) || given.nodes.length > NODES_MAX || !isId(given.id))
      throw new Error(`conversation ${k + 1} of the file is malformed`);
    const known = new Set(), nodes = [];
    for (const node of given.nodes) {
      const kept = soundNode(node, known);
      if (!kept) throw new Error(`conversation ${k + 1} of the file has a malformed message`);
      known.add(kept.id);
      nodes.push(kept);
    }
    const picks = {};
    for (const [from, to] of Object.entries(given.picks || {})) if (known.has(to)) picks[from] = to;
    const settings = given.settings && typeof given.settings === 'object' && !Array.isArray(given.settings)
      ? given.settings : {};
    return new Conversation({ id: given.id, title: isText(given.title) ? given.title.slice(0, 200) : '',
                              created: Number(given.created) || Date.now(),
                              updated: Number(given.updated) || Date.now(), settings, picks, nodes });
  });
}

export function writeExport(conversations) {
  return JSON.stringify({ format: 'nibble-conversations', version: 1,
                          conversations: conversations.map((c) => c.data()) }, null, 1);
}

/// All conversations; changes are written soon after touch(). Where the browser keeps nothing
/// (private windows of some), they live as long as the page.
export class Store {
  static async open() {
    const store = new Store();
    try {
      store.base = await new Promise((resolve, reject) => {
        const opening = indexedDB.open(DATABASE, 1);
        opening.onupgradeneeded = () => opening.result.createObjectStore(STORE, { keyPath: 'id' });
        opening.onsuccess = () => resolve(opening.result);
        opening.onerror = () => reject(opening.error);
      });
      for (const data of await store.ask('readonly', (s) => s.getAll())) {
        const conversation = new Conversation(data);
        store.all.set(conversation.id, conversation);
      }
    } catch {
      store.base = null;
    }
    return store;
  }

  constructor() {
    this.all = new Map();
    this.base = null;
    this.waiting = new Map();
  }

  ask(mode, action) {
    return new Promise((resolve, reject) => {
      const request = action(this.base.transaction(STORE, mode).objectStore(STORE));
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    });
  }

  sorted() { return [...this.all.values()].sort((a, b) => b.updated - a.updated); }

  touch(conversation) {
    this.all.set(conversation.id, conversation);
    if (!this.base || this.waiting.has(conversation.id)) return;
    this.waiting.set(conversation.id, setTimeout(() => this.write(conversation), 250));
  }

  async write(conversation) {
    clearTimeout(this.waiting.get(conversation.id));
    this.waiting.delete(conversation.id);
    if (!this.base || !this.all.has(conversation.id)) return;
    try {
      await this.ask('readwrite', (s) => s.put(conversation.data()));
    } catch (error) {
      console.warn('a conversation could not be kept:', error);
    }
  }

  writeAll() {
    for (const id of [...this.waiting.keys()]) this.write(this.all.get(id));
  }

  async remove(conversation) {
    this.all.delete(conversation.id);
    if (this.base) await this.ask('readwrite', (s) => s.delete(conversation.id));
  }
}
