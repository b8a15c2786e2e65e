// The page: which conversation is shown, what its buttons do, where it is kept. The parts are in the
// other files; this one joins them.
import { Answers } from './answers.js';
import { ApiFailure, getJson, saveKey, savedKey } from './api.js';
import { attachPictures, pictureTray, tooManyPictures } from './attachments.js';
import { download, element, icon, iconButton } from './dom.js';
import { EngineView } from './engine.js';
import { recall, remember } from './memory.js';
import { MessageView, speedOf } from './messages.js';
import { settingsProblem, showSettings } from './settings.js';
import { Conversation, Store, readExport, writeExport } from './store.js';
import { nextTheme, startTheme, themeName } from './theme.js';

const byId = (id) => document.getElementById(id);
const LAST_SETTINGS = 'nibble-settings';
const TITLE_CHARS = 60;

class App {
  constructor(store) {
    this.store = store;
    this.models = [];
    this.views = [];
    this.pictures = [];
    this.follow = true;
    this.frame = 0;
    this.engine = new EngineView(byId('engine'));
    this.answers = new Answers((c, node) => this.changed(c, node), (c, node) => this.ended(c, node));
    this.current = store.sorted()[0] || this.fresh();
  }

  // ---- conversations ----

  fresh() {
    let settings = {};
    try {
      settings = JSON.parse(recall(LAST_SETTINGS)) || {};
    } catch { /* as new */ }
    return new Conversation({ settings });
  }

  open(conversation) {
    this.current = conversation;
    this.chooseModel();
    this.closeDrawers();
    this.show('chat');
    this.follow = true;
    this.render();
    this.renderList();
    this.notice('');
    if (!matchMedia('(pointer: coarse)').matches) byId('question').focus();
  }

  newChat() {
    this.open(this.fresh());
  }

  renderList() {
    const wanted = byId('search').value.trim().toLowerCase();
    const matches = (c) => !wanted || c.title.toLowerCase().includes(wanted) ||
      [...c.nodes.values()].some((n) => n.content.toLowerCase().includes(wanted));
    byId('conversations').replaceChildren(...this.store.sorted().filter(matches).map((c) => {
      const open = element('button', { type: 'button', class: 'entry-name', title: c.title }, c.title || 'New chat');
      open.addEventListener('click', () => this.open(c));
      const remove = iconButton('trash', 'Delete conversation', () => this.remove(c));
      return element('div', { class: 'entry', ...(c === this.current ? { 'aria-current': 'true' } : {}) }, open, remove);
    }));
  }

  async remove(conversation) {
    if (!await this.ask(`Delete “${conversation.title || 'New chat'}”? It is kept nowhere else.`)) return;
    this.answers.stop(conversation);
    await this.store.remove(conversation);
    if (conversation === this.current) this.open(this.store.sorted()[0] || this.fresh());
    else this.renderList();
  }

  ask(text) {
    const dialog = byId('ask');
    byId('ask-text').textContent = text;
    dialog.showModal();
    return new Promise((resolve) => {
      byId('ask-yes').onclick = () => dialog.close('yes');
      byId('ask-no').onclick = () => dialog.close('no');
      dialog.onclose = () => resolve(dialog.returnValue === 'yes');
    });
  }

  keep(conversation = this.current) {
    if (conversation.nodes.size) this.store.touch(conversation);
    if (conversation === this.current)
      remember(LAST_SETTINGS, JSON.stringify(conversation.settings));
  }

  // ---- messages ----

  render() {
    const actions = {
      turn: (node, step) => { this.current.turn(node, step); this.keep(); this.render(); },
      retry: (node) => this.answer(node.parent),
      reword: (node, text, images) => {
        const next = this.current.add(node.parent, { role: 'user', content: text, ...(images.length ? { images } : {}) });
        this.answer(next.id);
      },
      result: (node, call, text) => this.toolResult(node, call, text),
    };
    const shown = this.current.path();
    this.views = shown.map((node) => new MessageView(this.current, node, actions));
    byId('messages').replaceChildren(...(shown.length ? this.views.map((v) => v.root) : [this.welcome()]));
    this.renderState();
    this.scroll();
  }

  welcome() {
    return element('div', { class: 'welcome' }, element('img', { src: '/assets/icon.svg', alt: '', width: '44', height: '44' }),
      element('h1', {}, 'What shall we work on?'),
      element('p', {}, 'Conversations stay in this browser. Nothing leaves this server.'));
  }

  /// Send button, gauge, speed, model: whatever stands around the messages.
  renderState() {
    const running = this.answers.runs(this.current);
    const send = byId('send');
    send.replaceChildren(icon(running ? 'stop' : 'send'));
    send.setAttribute('aria-label', running ? 'Stop' : 'Send');
    send.title = running ? 'Stop' : 'Send';
    send.classList.toggle('running', running);
    send.disabled = !running && !byId('question').value.trim();
    byId('attach').hidden = !this.takesPictures();
    this.renderGauge();
    byId('model').value = this.current.settings.model || '';
  }

  renderGauge() {
    const most = this.modelCard() ? this.modelCard().max_model_len : 0;
    const last = [...this.current.path()].reverse().find((node) => node.usage);
    const used = last ? last.usage.total_tokens : 0;
    const share = most > 0 ? used / most : 0;
    const gauge = byId('gauge');
    gauge.style.setProperty('--share', Math.min(1, share));
    gauge.classList.toggle('tight', share > 0.85);
    gauge.hidden = most === 0;
    byId('gauge-text').textContent = most > 0 ? `${compact(used)} / ${compact(most)}` : '';
    gauge.title = `Context: ${used.toLocaleString('en')} of ${most.toLocaleString('en')} tokens`;
    const live = this.views.map((v) => v.node).find((node) => node.live);
    const words = byId('speed');
    if (live && live.first_ms !== undefined) {
      const time = (performance.now() - live.live.begin - live.first_ms) / 1000;
      const said = live.usage ? live.usage.completion_tokens : 0;
      words.textContent = time > 0.3 && said > 0 ? `${Math.round(said / time)} tokens/s` : '';
    } else {
      const speed = last ? speedOf(last) : null;
      words.textContent = speed !== null ? `${Math.round(speed)} tokens/s` : '';
    }
  }

  scroll() {
    const scroller = byId('scroller');
    if (this.follow) scroller.scrollTop = scroller.scrollHeight;
    byId('to-end').hidden = this.follow || scroller.scrollHeight - scroller.clientHeight < 200;
  }

  /// A piece of an answer has come: shown at most once a frame.
  changed(conversation, node) {
    this.store.touch(conversation);
    if (conversation !== this.current || this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      if (conversation !== this.current) return;
      const view = this.views.find((v) => v.node === node);
      if (!view) return this.render();
      view.update();
      this.renderState();
      this.scroll();
    });
  }

  ended(conversation, node) {
    this.store.touch(conversation);
    if (node.status === 401) this.askKey();
    if (conversation === this.current) this.render();
    this.renderList();
  }

  answer(parent) {
    const problem = settingsProblem(this.current.settings);
    if (problem) return this.notice(problem);
    this.notice('');
    this.follow = true;
    this.answers.start(this.current, parent);
    this.keep();
    this.render();
    this.renderList();
  }

  submit() {
    const box = byId('question');
    if (this.answers.runs(this.current)) return this.answers.stop(this.current);
    const text = box.value.trim();
    const problem = settingsProblem(this.current.settings) ||
      (this.pictures.length ? tooManyPictures(this.sentPictures(), this.pictures) : '');
    if (problem) this.notice(problem);
    if (!text || problem) return;
    const path = this.current.path();
    const last = path.length ? path[path.length - 1].id : null;
    if (!this.current.title) this.current.title = text.split('\n')[0].slice(0, TITLE_CHARS);
    const node = this.current.add(last, { role: 'user', content: text,
                                          ...(this.pictures.length ? { images: [...this.pictures] } : {}) });
    box.value = '';
    this.pictures.length = 0;
    this.renderPictures();
    fit(box);
    this.answer(node.id);
  }

  /// The conversation goes on once every call of the message has its result.
  toolResult(node, call, text) {
    const path = this.current.path();
    const last = path[path.length - 1];
    const result = this.current.add(last.id, { role: 'tool', call_id: call.id, content: text });
    const done = new Set(this.current.path().filter((n) => n.role === 'tool').map((n) => n.call_id));
    if (node.calls.every((c) => done.has(c.id))) return this.answer(result.id);
    this.keep();
    this.render();
  }

  // ---- pictures ----

  renderPictures() {
    byId('attached').replaceChildren(...pictureTray(this.pictures, () => this.renderPictures()));
  }

  /// The server might take pictures as long as it has not said that it does not.
  takesPictures() {
    const card = this.modelCard();
    return !card || !card.input_modalities || card.input_modalities.includes('image');
  }

  /// Pictures that every further request of this conversation holds.
  sentPictures() {
    return this.current.path().flatMap((node) => node.images || []);
  }

  async addPictures(files) {
    const problem = this.takesPictures() ? await attachPictures(files, this.pictures, this.sentPictures())
      : 'this model is given text alone: it takes no pictures';
    this.notice(problem);
    this.renderPictures();
  }

  // ---- around ----

  notice(text) {
    byId('notice').textContent = text;
    byId('notice').hidden = !text;
  }

  show(name) {
    byId('chat').hidden = name !== 'chat';
    byId('engine').hidden = name !== 'engine';
    document.body.dataset.view = name;
    if (name === 'engine') this.engine.open();
    else this.engine.close();
  }

  toggleEngine() {
    this.closeDrawers();
    this.show(byId('engine').hidden ? 'engine' : 'chat');
    if (!byId('chat').hidden) this.scroll();
  }

  togglePanel() {
    const panel = byId('panel');
    panel.hidden = !panel.hidden;
    if (!panel.hidden) showSettings(byId('settings'), this.current.settings, () => this.keep());
    this.shade();
  }

  closeDrawers() {
    document.body.classList.remove('menu-open');
    byId('panel').hidden = true;
    this.shade();
  }

  shade() {
    byId('shade').hidden = byId('panel').hidden && !document.body.classList.contains('menu-open');
  }

  modelCard() {
    return this.models.find((card) => card.id === this.current.settings.model) || this.models[0];
  }

  async loadModels() {
    try {
      this.models = withoutAliases((await getJson('/v1/models')).data);
      this.notice('');
    } catch (error) {
      if (error instanceof ApiFailure && error.status === 401) this.askKey();
      else this.notice(error.message);
      return;
    }
    byId('model').replaceChildren(...modelOptions(this.models));
    this.chooseModel();
    this.renderState();
  }

  /// A conversation of another server, or a new one, gets this server's first model.
  chooseModel() {
    const { settings } = this.current;
    if (this.models.length && !this.models.some((card) => card.id === settings.model))
      settings.model = this.models[0].id;
  }

  askKey() {
    const dialog = byId('key-dialog');
    byId('key-problem').textContent = savedKey() ? 'The server does not know this key.' : '';
    if (!dialog.open) dialog.showModal();
  }

  exportAll() {
    this.store.writeAll();
    download('nibble-conversations.json', writeExport(this.store.sorted()));
  }

  async importFile(file) {
    try {
      if (file.size > 200e6) throw new Error('this file is larger than 200 MB');
      const read = readExport(await file.text());
      for (const conversation of read) this.store.touch(conversation);
      this.notice('');
      this.open(read[0] || this.current);
    } catch (error) {
      this.notice(error.message);
      this.show('chat');
    }
  }

  // ---- wiring ----

  wire() {
    byId('new-chat').append(icon('plus'), 'New chat');
    byId('new-chat').addEventListener('click', () => this.newChat());
    byId('search').addEventListener('input', () => this.renderList());
    byId('bar-left').append(iconButton('menu', 'Conversations', () => {
      document.body.classList.toggle('menu-open');
      this.shade();
    }, { id: 'menu' }));
    byId('bar-right').append(iconButton('tune', 'Settings', () => this.togglePanel(), { id: 'tune' }));
    byId('panel-close').append(iconButton('close', 'Close settings', () => this.closeDrawers()));
    byId('shade').addEventListener('click', () => this.closeDrawers());
    byId('composer-left').append(iconButton('image', 'Attach a picture', () => byId('file').click(), { id: 'attach' }));
    byId('to-end').append(icon('down'));
    byId('to-end').addEventListener('click', () => { this.follow = true; this.scroll(); });
    byId('file').addEventListener('change', (event) => {
      this.addPictures(event.target.files);
      event.target.value = '';
    });
    byId('model').addEventListener('change', (event) => {
      this.current.settings.model = event.target.value;
      this.keep();
      this.renderState();
    });
    this.wireTools();
    this.wireComposer();
  }

  wireTools() {
    const entry = (name, id, label, action) => {
      const button = element('button', { type: 'button', id }, icon(name), element('span', {}, label));
      button.addEventListener('click', action);
      return button;
    };
    const chooser = element('input', { type: 'file', accept: 'application/json,.json', id: 'import-file', hidden: '' });
    chooser.addEventListener('change', () => {
      if (chooser.files[0]) this.importFile(chooser.files[0]);
      chooser.value = '';
    });
    const theme = entry('theme', 'theme', themeName(), () => { theme.lastChild.textContent = nextTheme(); });
    byId('tools').append(
      entry('gauge', 'show-engine', 'Engine', () => this.toggleEngine()),
      entry('book', 'show-docs', 'API', () => window.open('/docs', '_blank', 'noopener')),
      entry('save', 'export', 'Export', () => this.exportAll()),
      entry('up', 'import', 'Import', () => chooser.click()), chooser, theme);
  }

  wireComposer() {
    const box = byId('question'), scroller = byId('scroller');
    box.addEventListener('input', () => { fit(box); this.renderState(); });
    box.addEventListener('keydown', (event) => {
      const phone = matchMedia('(pointer: coarse)').matches;
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing || (phone && !event.ctrlKey)) return;
      event.preventDefault();
      if (!this.answers.runs(this.current)) this.submit();
    });
    box.addEventListener('paste', (event) => {
      const files = [...event.clipboardData.files];
      if (!files.length) return;
      event.preventDefault();
      this.addPictures(files);
    });
    byId('composer').addEventListener('submit', (event) => { event.preventDefault(); this.submit(); });
    byId('chat').addEventListener('dragover', (event) => event.preventDefault());
    byId('chat').addEventListener('drop', (event) => {
      event.preventDefault();
      this.addPictures(event.dataTransfer.files);
    });
    scroller.addEventListener('scroll', () => {
      this.follow = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 60;
      byId('to-end').hidden = this.follow;
    });
    byId('key-form').addEventListener('submit', (event) => {
      event.preventDefault();
      saveKey(byId('key').value.trim(), byId('key-forever').checked);
      byId('key').value = '';
      byId('key-dialog').close();
      this.loadModels();
    });
    addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && !document.querySelector('dialog[open]')) this.closeDrawers();
    });
    addEventListener('pagehide', () => this.store.writeAll());
  }
}

function compact(n) {
  return n < 1000 ? String(n) : n < 10240 ? (n / 1024).toFixed(1) + 'K' : Math.round(n / 1024) + 'K';
}

function fit(box) {
  box.style.height = 'auto';
  box.style.height = Math.min(box.scrollHeight, 260) + 'px';
}

/// Of the names of one model, the one it calls itself; and its profiles.
function withoutAliases(cards) {
  return cards.filter((card) => card.id.includes(':') || !card.root || card.id === card.root);
}

/// The served name, then its profiles: `NAME:PROFILE` by the profile's name alone.
function modelOptions(cards) {
  const option = (card, text) => element('option', { value: card.id }, text);
  const isProfile = (card) => card.root && card.id.startsWith(card.root + ':');
  const profiles = cards.filter(isProfile);
  const made = cards.filter((card) => !isProfile(card)).map((card) => option(card, card.id));
  if (profiles.length)
    made.push(element('optgroup', { label: 'Profiles' },
                      ...profiles.map((card) => option(card, card.id.slice(card.root.length + 1)))));
  return made;
}

startTheme();
const app = new App(await Store.open());
app.wire();
app.open(app.current);
app.loadModels();
