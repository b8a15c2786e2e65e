// What stands inside a paragraph of Markdown, as DOM nodes: code, emphasis, links, maths. One pass, then
// the runs of * _ ~ are paired; linear in the text. Private to markdown.js.
import { element } from './dom.js';
import { mathNode } from './math.js';

const DEPTH_MAX = 12;  // of emphasis in emphasis; deeper ones are flat
const LINK_CHARS_MAX = 2000;

/// The address if it is harmless to click, else null.
export function safeAddress(text) {
  return /^(https?:\/\/[^\s\\]|mailto:[^\s\\])/i.test(text) && !/[\u0000-\u0020\u007f]/.test(text)
    ? text : null;
}

function link(address, ...children) {
  return element('a', { href: address, target: '_blank', rel: 'noopener noreferrer nofollow' },
                 ...children);
}

const PUNCTUATION = /[!-/:-@[-`{-~\p{P}\p{S}]/u;

/// One pass over the text that leaves a flat list: strings, nodes, and runs of * _ ~ to be paired.
class Inline {
  constructor(text) {
    this.text = text;
    this.out = [];
    this.plain = '';
    this.brackets = [];
    this.noRun = new Map();  // run length -> no closing backticks of this length from here on
    this.noMath = false;
  }

  flush() {
    if (this.plain) this.out.push(this.plain);
    this.plain = '';
  }
  push(item) {
    this.flush();
    this.out.push(item);
  }

  scan() {
    const { text } = this;
    let i = 0;
    while (i < text.length) {
      const c = text[i];
      let next = i;
      if (c === '\\') next = this.escape(i);
      else if (c === '`') next = this.code(i);
      else if (c === '$') next = this.dollar(i);
      else if (c === '*' || c === '_' || c === '~') next = this.run(i);
      else if (c === '[' || (c === '!' && text[i + 1] === '[')) next = this.open(i);
      else if (c === ']') next = this.close(i);
      else if (c === '<') next = this.angle(i);
      else if (c === 'h' && (text.startsWith('http://', i) || text.startsWith('https://', i)))
        next = this.bare(i);
      else if (c === '\n') next = this.lineEnd(i);
      if (next === i) { this.plain += c; next = i + 1; }
      i = next;
    }
    this.flush();
    return this.out;
  }

  escape(i) {
    const c = this.text[i + 1];
    if (c === '(') {
      const length = this.text.slice(i + 2, i + LINK_CHARS_MAX).indexOf('\\)');
      if (length > 0) {
        this.push(mathNode(this.text.slice(i + 2, i + 2 + length), false));
        return i + length + 4;
      }
    }
    if (c === '\n') { this.push(element('br')); return i + 2; }
    if (c !== undefined && /[!-/:-@[-`{-~]/.test(c)) { this.plain += c; return i + 2; }
    return i;
  }

  code(i) {
    const { text } = this;
    let n = i;
    while (text[n] === '`') n++;
    const length = n - i;
    if (!this.noRun.has(length)) {
      for (let j = text.indexOf('`', n); j >= 0;) {
        let end = j;
        while (text[end] === '`') end++;
        if (end - j === length) {
          let body = text.slice(n, j).replace(/\n/g, ' ');
          if (/^ .* $/.test(body) && body.trim()) body = body.slice(1, -1);
          this.push(element('code', {}, body));
          return end;
        }
        j = text.indexOf('`', end);
      }
      this.noRun.set(length, true);
    }
    this.plain += text.slice(i, n);
    return n;
  }

  /// $x$ as pandoc reads it: no space inside the dollars, no digit after the closing one.
  dollar(i) {
    const { text } = this;
    const double = text[i + 1] === '$';
    const begin = i + (double ? 2 : 1);
    if (this.noMath || begin >= text.length || (!double && /\s/.test(text[begin]))) return i;
    const limit = Math.min(text.length, begin + LINK_CHARS_MAX);
    for (let j = begin; j < limit; j++) {
      if (text[j] === '\\') { j++; continue; }
      if (text[j] === '\n' && text[j + 1] === '\n') return i;
      if (text[j] !== '$') continue;
      if (double && text[j + 1] !== '$') return i;
      if (j === begin || (!double && (/\s/.test(text[j - 1]) || /\d/.test(text[j + 1] || '')))) return i;
      this.push(mathNode(text.slice(begin, j), double));
      return j + (double ? 2 : 1);
    }
    if (limit === text.length) this.noMath = true;
    return i;
  }

  run(i) {
    const { text } = this;
    const mark = text[i];
    let n = i;
    while (text[n] === mark) n++;
    if (mark === '~' && n - i !== 2) { this.plain += text.slice(i, n); return n; }
    const before = i === 0 ? ' ' : text[i - 1];
    const after = n >= text.length ? ' ' : text[n];
    const left = !/\s/.test(after) && (!PUNCTUATION.test(after) || /\s/.test(before) || PUNCTUATION.test(before));
    const right = !/\s/.test(before) && (!PUNCTUATION.test(before) || /\s/.test(after) || PUNCTUATION.test(after));
    const inner = mark === '_';
    this.push({ mark, count: n - i, length: n - i, opens: [], closes: [],
                canOpen: left && (!inner || !right || PUNCTUATION.test(before)),
                canClose: right && (!inner || !left || PUNCTUATION.test(after)) });
    return n;
  }

  open(i) {
    const image = this.text[i] === '!';
    this.push({ bracket: true, literal: image ? '![' : '[', image });
    this.brackets.push(this.out.length - 1);
    return i + (image ? 2 : 1);
  }

  close(i) {
    if (!this.brackets.length) return i;
    const at = this.brackets.pop();
    const target = this.text[i + 1] === '(' ? this.target(i + 2) : null;
    if (target === null) return i;
    this.flush();
    const inside = this.out.splice(at).slice(1);
    // A link in a link is text: what it would open is decided by the inner one.
    const children = emphasise(inside);
    const address = safeAddress(target.address);
    const holder = address ? link(address) : element('span', { class: 'dead-link' });
    holder.append(...children);
    if (!holder.textContent) holder.append(target.address.slice(0, 200));
    if (!address) holder.setAttribute('title', 'not a web address: ' + target.address.slice(0, 200));
    this.out.push(holder);
    this.brackets.length = 0;
    return target.next;
  }

  /// ADDRESS "TITLE") after "(".
  target(i) {
    const { text } = this;
    const limit = Math.min(text.length, i + LINK_CHARS_MAX);
    let depth = 0, j = i;
    for (; j < limit; j++) {
      const c = text[j];
      if (c === '\n' || c === '<' || c === '[') return null;
      if (c === ' ' || c === '\t') break;
      if (c === '(' && ++depth > 4) return null;
      if (c === ')' && depth-- === 0) return { address: text.slice(i, j), next: j + 1 };
    }
    const title = /^[ \t]+(?:"[^"\n]{0,300}"|'[^'\n]{0,300}')[ \t]*\)/.exec(text.slice(j, j + 320));
    return title ? { address: text.slice(i, j), next: j + title[0].length } : null;
  }

  angle(i) {
    const found = /^<((?:https?:\/\/|mailto:)[^\s<>]{1,1000})>/i.exec(this.text.slice(i, i + 1020));
    if (!found || !safeAddress(found[1])) return i;
    this.push(link(found[1], found[1]));
    return i + found[0].length;
  }

  bare(i) {
    if (i > 0 && /[\w/]/.test(this.text[i - 1])) return i;
    const found = /^https?:\/\/[^\s<>"'`|\\\u0000-\u001f]{2,}/.exec(this.text.slice(i, i + LINK_CHARS_MAX));
    if (!found) return i;
    let address = found[0].replace(/[.,:;!?*_~\]]+$/, '');
    while (address.endsWith(')') && !address.includes('(')) address = address.slice(0, -1);
    if (!safeAddress(address)) return i;
    this.push(link(address, address));
    return i + address.length;
  }

  lineEnd(i) {
    if (!this.plain.endsWith('  ')) return i;
    this.plain = this.plain.trimEnd();
    this.push(element('br'));
    return i + 1;
  }
}

/// Pairs the runs (CommonMark's rule, with its bounds that keep it linear) and builds the nodes.
function emphasise(items) {
  const runs = items.filter((item) => item.mark);
  runs.forEach((run, k) => {
    run.place = k;
    run.before = runs[k - 1] || null;
    run.after = runs[k + 1] || null;
  });
  const bottom = new Map();  // kind of closer -> place at or before which it finds no opener
  let closer = runs[0] || null;
  while (closer) {
    if (!closer.canClose) { closer = closer.after; continue; }
    const key = closer.mark + (closer.canOpen ? 'o' : '') + (closer.length % 3);
    let opener = closer.before;
    const floor = bottom.has(key) ? bottom.get(key) : -1;
    while (opener && opener.place > floor && !pairs(opener, closer)) opener = opener.before;
    if (!opener || opener.place <= floor) {
      bottom.set(key, closer.place - 1);
      const after = closer.after;
      if (!closer.canOpen) unlink(closer);
      closer = after;
      continue;
    }
    const width = closer.mark === '~' ? 2 : opener.count >= 2 && closer.count >= 2 ? 2 : 1;
    const tag = closer.mark === '~' ? 'del' : width === 2 ? 'strong' : 'em';
    opener.opens.unshift(tag);
    closer.closes.push(tag);
    opener.count -= width;
    closer.count -= width;
    opener.after = closer;
    closer.before = opener;
    if (opener.count === 0) unlink(opener);
    if (closer.count === 0) {
      const after = closer.after;
      unlink(closer);
      closer = after;
    }
  }
  return build(items);
}

function unlink(run) {
  if (run.before) run.before.after = run.after;
  if (run.after) run.after.before = run.before;
}

function pairs(opener, closer) {
  if (opener.mark !== closer.mark || !opener.canOpen || opener.count === 0) return false;
  const odd = (opener.canClose || closer.canOpen) && (opener.length + closer.length) % 3 === 0 &&
              (opener.length % 3 !== 0 || closer.length % 3 !== 0);
  return !odd;
}

function build(items) {
  const root = document.createDocumentFragment();
  const stack = [root];
  let flat = 0;
  for (const item of items) {
    const top = () => stack[stack.length - 1];
    if (typeof item === 'string') top().append(item);
    else if (item.bracket) top().append(item.literal);
    else if (item.mark) {
      for (const _ of item.closes) { if (flat > 0) flat--; else if (stack.length > 1) stack.pop(); }
      if (item.count > 0) top().append(item.mark.repeat(item.count));
      for (const tag of item.opens) {
        if (stack.length > DEPTH_MAX) { flat++; continue; }
        const node = element(tag);
        top().append(node);
        stack.push(node);
      }
    } else top().append(item);
  }
  root.normalize();
  return [...root.childNodes];
}

export function inlineNodes(text) {
  return emphasise(new Inline(text).scan());
}
