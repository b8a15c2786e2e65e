// The messages of a conversation as nodes: what was asked, thought, called, answered, and what one can
// do with each. Everything that came from the model or a file is text or goes through renderMarkdown.
import { pictureTray } from './attachments.js';
import { copyText, element, icon, iconButton } from './dom.js';
import { renderMarkdown } from './markdown.js';

function seconds(ms) {
  const s = ms / 1000;
  if (s < 0.95) return `${Math.round(ms)} ms`;
  return s < 10 ? `${s.toFixed(1)} s` : s < 90 ? `${Math.round(s)} s` : `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
}

/// The server's own timing: what the network and this page add is no part of it.
export function speedOf(node) {
  return Number.isFinite(node.rate) ? node.rate : null;
}

function figures(node) {
  const words = [];
  if (node.usage) words.push(`${node.usage.completion_tokens.toLocaleString('en')} tokens`);
  const speed = speedOf(node);
  if (speed !== null) words.push(`${speed >= 100 ? Math.round(speed) : speed.toFixed(1)} tokens/s`);
  if (node.first_ms !== undefined) words.push(`first after ${seconds(node.first_ms)}`);
  if (node.usage && node.usage.cached_tokens) words.push(`${node.usage.cached_tokens.toLocaleString('en')} from cache`);
  const ends = { length: 'cut at the longest answer', stopped: 'stopped', content_filter: 'withheld by the filter',
                 repetition: 'ended: it repeated itself' };
  if (ends[node.finish]) words.push(ends[node.finish]);
  return words.join(' · ');
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/// One message and how it is brought up to date. `actions` are what the page does for it.
export class MessageView {
  constructor(conversation, node, actions) {
    this.conversation = conversation;
    this.node = node;
    this.actions = actions;
    this.body = element('div', { class: 'body markdown' });
    this.root = element('article', { class: 'message ' + node.role, 'data-id': node.id });
    if (node.role === 'assistant') this.buildAssistant();
    else this.buildSent();
    this.update();
  }

  buildSent() {
    const { node } = this;
    if (node.role === 'tool')
      this.root.append(element('div', { class: 'call-head' }, icon('tool'), 'Result'));
    if (node.images && node.images.length)
      this.root.append(element('div', { class: 'pictures' },
        ...node.images.map((src) => element('img', { src, alt: 'attached picture' }))));
    this.body.className = node.role === 'tool' ? 'body mono plain' : 'body plain';
    this.body.textContent = node.role === 'tool' ? pretty(node.content) : node.content;
    this.root.append(this.body);
    this.foot = element('div', { class: 'foot' });
    this.root.append(this.foot);
  }

  buildAssistant() {
    this.thinking = element('details', { class: 'thinking', hidden: '' });
    this.thinkingHead = element('summary');
    this.thinkingBody = element('div', { class: 'thought plain' });
    this.thinking.append(this.thinkingHead, this.thinkingBody);
    this.calls = element('div', { class: 'calls' });
    this.note = element('div', { class: 'note', role: 'alert', hidden: '' });
    this.reading = element('em');
    this.waiting = element('div', { class: 'waiting', 'aria-label': 'The model is at work' },
                           element('span'), element('span'), element('span'), this.reading);
    this.foot = element('div', { class: 'foot' });
    this.root.append(this.thinking, this.body, this.calls, this.note, this.waiting, this.foot);
  }

  update() {
    const { node } = this;
    if (node.role === 'assistant') this.updateAssistant();
    const live = node.live !== undefined;
    this.root.classList.toggle('live', live);
    this.foot.replaceChildren(...(live ? [] : this.buttons()));
  }

  updateAssistant() {
    const { node } = this;
    const live = node.live !== undefined;
    this.thinking.hidden = !node.reasoning;
    if (node.reasoning) {
      const still = live && !node.content && !(node.calls && node.calls.length);
      this.thinkingHead.textContent = still ? `Thinking… ${seconds(node.reasoning_ms)}`
        : node.reasoning_ms !== undefined ? `Thought for ${seconds(node.reasoning_ms)}` : 'Thought';
      this.thinking.classList.toggle('now', still);
      if (this.thinkingBody.textContent !== node.reasoning) this.thinkingBody.textContent = node.reasoning;
    }
    if (this.shown !== node.content) renderMarkdown(this.body, node.content);
    this.shown = node.content;
    this.updateCalls(live);
    this.waiting.hidden = !live || Boolean(node.content || node.reasoning || (node.calls && node.calls.length));
    const share = live ? node.live.prompt : undefined;
    this.reading.textContent = share !== undefined && share < 1 ? `Reading the prompt, ${Math.round(share * 100)} %` : '';
    this.note.hidden = !node.error;
    if (node.error) this.note.textContent = node.error;
  }

  updateCalls(live) {
    const calls = this.node.calls || [];
    const mark = calls.map((call) => call.name + call.arguments).join('\n') + live;
    if (this.callsMark === mark) return;
    this.callsMark = mark;
    const answered = new Set(this.conversation.path().filter((n) => n.role === 'tool').map((n) => n.call_id));
    this.calls.replaceChildren(...calls.map((call) => {
      const card = element('div', { class: 'call' },
        element('div', { class: 'call-head' }, icon('tool'), element('strong', {}, call.name || '…')),
        element('pre', { class: 'mono', tabindex: '0' }, live ? call.arguments : pretty(call.arguments)));
      if (!live && !answered.has(call.id)) card.append(this.resultForm(call));
      return card;
    }));
  }

  /// Where a person plays the tool.
  resultForm(call) {
    const area = element('textarea', { rows: 1, placeholder: 'Result of the call, to go on', 'aria-label': 'Result of ' + call.name });
    const send = element('button', { type: 'submit', class: 'quiet' }, 'Send result');
    const form = element('form', { class: 'result' }, area, send);
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      if (area.value.trim()) this.actions.result(this.node, call, area.value);
    });
    return form;
  }

  buttons() {
    const { node, actions } = this;
    const made = [];
    const all = this.conversation.siblings(node);
    if (all.length > 1) {
      const at = all.indexOf(node.id);
      const before = iconButton('left', 'Previous version', () => actions.turn(node, -1), at === 0 ? { disabled: '' } : {});
      const after = iconButton('right', 'Next version', () => actions.turn(node, 1), at === all.length - 1 ? { disabled: '' } : {});
      made.push(element('span', { class: 'branches' }, before, element('span', { class: 'place' }, `${at + 1} / ${all.length}`), after));
    }
    const copy = iconButton('copy', 'Copy', () => copyText(node.content, copy));
    made.push(copy);
    if (node.role === 'user') made.push(iconButton('edit', 'Edit', () => this.edit()));
    if (node.role === 'assistant') {
      made.push(iconButton('retry', 'Answer again', () => actions.retry(node)));
      made.push(element('span', { class: 'figures' }, figures(node)));
    }
    return made;
  }

  /// The message becomes a field; sending it makes a sibling of it.
  edit() {
    const area = element('textarea', { class: 'edit', 'aria-label': 'Edit message' });
    area.value = this.node.content;
    const pictures = [...(this.node.images || [])];
    const tray = element('div', { class: 'tray' });
    const showTray = () => tray.replaceChildren(...pictureTray(pictures, showTray));
    showTray();
    const cancel = element('button', { type: 'button', class: 'quiet' }, 'Cancel');
    const send = element('button', { type: 'submit', class: 'primary' }, 'Send');
    const form = element('form', { class: 'editor' }, tray, area, element('div', { class: 'row' }, cancel, send));
    const close = () => {
      form.replaceWith(this.body);
      this.foot.hidden = false;
      this.root.classList.remove('editing');
    };
    cancel.addEventListener('click', close);
    area.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') close();
      const phone = matchMedia('(pointer: coarse)').matches;
      const held = event.ctrlKey || event.metaKey;
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing || (phone && !held)) return;
      event.preventDefault();
      form.requestSubmit();
    });
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      if (!area.value.trim()) return;
      close();
      this.actions.reword(this.node, area.value, pictures);
    });
    this.body.replaceWith(form);
    this.foot.hidden = true;
    this.root.classList.add('editing');
    area.style.height = Math.min(area.scrollHeight + 4, 400) + 'px';
    area.focus();
  }
}
