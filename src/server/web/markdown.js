// Markdown to DOM nodes, in linear time. The text is hostile: every character becomes a text node or
// nothing, no HTML is read, links are http(s) or mailto, pictures are never loaded. A subset: headings,
// paragraphs, lists (tasks too), tables, fences, quotes, rules, maths; code, emphasis, links inside.
import { copyText, element } from './dom.js';
import { inlineNodes } from './inline.js';
import { mathNode } from './math.js';

const DEPTH_MAX = 12;  // of quotes and lists in each other; deeper ones are flat
const TABLE_CELLS_MAX = 20000;

// ---- blocks ----

const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:([ \t]{1,4})(?=\S)|[ \t]*$|([ \t]))/;

function isRule(line) {
  const bare = line.replace(/[ \t]/g, '');
  return bare.length >= 3 && /^ {0,3}[-*_]/.test(line) && /^(-+|\*+|_+)$/.test(bare);
}

/// {indent, mark, length, info} of a line of at least three backticks or tildes, else null.
function fenceOf(line) {
  let begin = 0;
  while (begin < 3 && line[begin] === ' ') begin++;
  const mark = line[begin];
  if (mark !== '`' && mark !== '~') return null;
  let end = begin;
  while (line[end] === mark) end++;
  if (end - begin < 3 || (mark === '`' && line.includes('`', end))) return null;
  return { indent: begin, mark, length: end - begin, info: line.slice(end).trim() };
}

/// Whether line `i` is the rule below a table's head: |---|:-:|
function isTableRule(lines, i) {
  const line = lines[i];
  if (line === undefined || !line.includes('-') || !/^[ \t|:-]+$/.test(line)) return false;
  return cells(line).every((cell) => /^:?-+:?$/.test(cell));
}

function indentOf(line) {
  let n = 0;
  while (n < line.length && (line[n] === ' ' || line[n] === '\t')) n++;
  return n;
}

function closesMath(line, close) {
  return line.trimEnd().endsWith(close);
}

/// Whether a line that may follow a paragraph begins something else.
function interrupts(line) {
  const item = ITEM.exec(line);
  return fenceOf(line) !== null || HEADING.test(line) || isRule(line) || /^ {0,3}>/.test(line) ||
         /^ {0,3}(\$\$|\\\[)/.test(line) ||
         (item !== null && item[3] !== undefined && !/^\d/.test(item[2])) ||
         (item !== null && item[3] !== undefined && /^1[.)]/.test(item[2]));
}

function takeFence(lines, at, fence) {
  const body = [];
  let i = at + 1, closed = false;
  for (; i < lines.length && !closed; i++) {
    const end = fenceOf(lines[i]);
    closed = end !== null && end.mark === fence.mark && end.length >= fence.length && !end.info;
    if (!closed) body.push(lines[i].slice(Math.min(fence.indent, indentOf(lines[i]))));
  }
  return { block: { kind: 'code', language: fence.info.split(/\s/)[0], text: body.join('\n') },
           next: i };
}

/// $$ ... $$ or \[ ... \], on one line or several; null if it never closes within 200 lines.
function takeMath(lines, at) {
  const first = lines[at].trim();
  const close = first.startsWith('$$') ? '$$' : '\\]';
  const rest = first.slice(2);
  if (rest.trim() && closesMath(rest, close))
    return { block: { kind: 'math', text: rest.trimEnd().slice(0, -2) }, next: at + 1 };
  if (rest.includes(close)) return null;
  const body = [rest];
  for (let i = at + 1; i < lines.length && i < at + 200; i++) {
    if (closesMath(lines[i], close)) {
      body.push(lines[i].trimEnd().slice(0, -2));
      return { block: { kind: 'math', text: body.join('\n') }, next: i + 1 };
    }
    if (lines[i].includes(close)) return null;
    body.push(lines[i]);
  }
  return null;
}

function takeQuote(lines, at) {
  const body = [];
  let i = at;
  for (; i < lines.length; i++) {
    const quoted = /^ {0,3}> ?/.exec(lines[i]);
    if (quoted) body.push(lines[i].slice(quoted[0].length));
    else if (lines[i].trim() && body.length && body[body.length - 1].trim() && !interrupts(lines[i]))
      body.push(lines[i]);
    else break;
  }
  return { block: { kind: 'quote', lines: body }, next: i };
}

function takeList(lines, at) {
  const first = ITEM.exec(lines[at]);
  const ordered = /\d/.test(first[2]);
  const family = ordered ? first[2].slice(-1) : first[2];
  const items = [];
  let i = at, loose = false, blank = false;
  while (i < lines.length) {
    const line = lines[i];
    const found = isRule(line) ? null : ITEM.exec(line);
    const mine = found !== null && (ordered ? /\d/.test(found[2]) && found[2].endsWith(family)
                                            : found[2] === family);
    const item = items[items.length - 1];
    if (!line.trim()) {
      blank = true;
      if (item) item.lines.push('');
    } else if (item && indentOf(line) >= first[1].length + 2) {  // models indent less than they should
      if (blank) loose = loose || !/^\s*([-*+]|\d+[.)])\s/.test(line);
      item.lines.push(line.slice(Math.min(indentOf(line), item.indent)));
      blank = false;
    } else if (mine) {
      if (blank && items.length) loose = true;
      const width = found[0].length;
      items.push({ indent: Math.min(width, found[1].length + found[2].length + 4),
                   lines: [line.slice(width)] });
      blank = false;
    } else if (item && !blank && !interrupts(line)) {
      item.lines.push(line.trimStart());
    } else break;
    i++;
  }
  const start = ordered ? parseInt(first[2], 10) : 1;
  return { block: { kind: 'list', ordered, start, loose, items: items.map((x) => x.lines) }, next: i };
}

/// The cells of a table's row; a bar inside code or after a backslash is text.
function cells(line) {
  const out = [];
  let cell = '', code = false;
  const text = line.trim().replace(/^\|/, '');
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (c === '\\' && text[i + 1] === '|') { cell += '|'; i++; continue; }
    if (c === '`') code = !code;
    if (c === '|' && !code) { out.push(cell.trim()); cell = ''; continue; }
    cell += c;
  }
  if (cell.trim() || !text.endsWith('|')) out.push(cell.trim());
  return out;
}

function takeTable(lines, at) {
  const head = cells(lines[at]);
  const rules = cells(lines[at + 1]);
  if (rules.length !== head.length) return null;
  const align = rules.map((r) => (r.startsWith(':') && r.endsWith(':') && r.length > 1 ? 'center'
                                  : r.endsWith(':') ? 'right' : r.startsWith(':') ? 'left' : ''));
  const rows = [];
  let i = at + 2;
  while (i < lines.length && lines[i].includes('|') && lines[i].trim() &&
         (rows.length + 1) * head.length < TABLE_CELLS_MAX) {
    const row = cells(lines[i]).slice(0, head.length);
    while (row.length < head.length) row.push('');
    rows.push(row);
    i++;
  }
  return { block: { kind: 'table', head, align, rows }, next: i };
}

function takeParagraph(lines, at) {
  let i = at + 1;
  while (i < lines.length && lines[i].trim() && !interrupts(lines[i])) {
    if (lines[i].includes('|') && isTableRule(lines, i + 1)) break;
    i++;
  }
  const text = lines.slice(at, i).map((line) => line.trimStart()).join('\n').trimEnd();
  return { block: { kind: 'paragraph', text }, next: i };
}

function takeBlock(lines, i, depth) {
  const line = lines[i];
  const fence = fenceOf(line);
  if (fence) return takeFence(lines, i, fence);
  const heading = HEADING.exec(line);
  if (heading)
    return { block: { kind: 'heading', level: heading[1].length,
                      text: (heading[2] || '').trim().replace(/(^|[ \t])#+$/, '') }, next: i + 1 };
  if (isRule(line)) return { block: { kind: 'rule' }, next: i + 1 };
  if (/^ {0,3}(\$\$|\\\[)/.test(line)) {
    const math = takeMath(lines, i);
    if (math) return math;
  }
  if (depth < DEPTH_MAX && /^ {0,3}>/.test(line)) return takeQuote(lines, i);
  if (depth < DEPTH_MAX && ITEM.test(line)) return takeList(lines, i);
  if (line.includes('|') && isTableRule(lines, i + 1)) {
    const table = takeTable(lines, i);
    if (table) return table;
  }
  return takeParagraph(lines, i);
}

/// The blocks of a text; `source` of each is its lines, by which a renderer sees what changed.
export function parseBlocks(lines, depth = 0) {
  const blocks = [];
  let i = 0;
  while (i < lines.length) {
    if (!lines[i].trim()) { i++; continue; }
    const { block, next } = takeBlock(lines, i, depth);
    if (depth === 0) block.source = lines.slice(i, next).join('\n');
    blocks.push(block);
    i = next;
  }
  return blocks;
}

// ---- nodes of blocks ----

function codeNode(block) {
  const copy = element('button', { type: 'button', class: 'copy', 'aria-label': 'Copy code' }, 'Copy');
  copy.addEventListener('click', () => {
    copyText(block.text);
    copy.textContent = 'Copied';
    setTimeout(() => { copy.textContent = 'Copy'; }, 1400);
  });
  return element('div', { class: 'code' },
    element('div', { class: 'code-bar' },
            element('span', { class: 'language' }, block.language.slice(0, 40) || 'text'), copy),
    element('pre', { tabindex: '0' }, element('code', {}, block.text)));
}

function itemNode(lines, block, depth) {
  const item = element('li');
  const task = /^\[([ xX])\][ \t]+/.exec(lines[0]);
  if (task) {
    lines = [lines[0].slice(task[0].length), ...lines.slice(1)];
    const box = element('input', { type: 'checkbox', disabled: '' });
    box.checked = task[1] !== ' ';
    item.classList.add('task');
    item.append(box);
  }
  for (const inner of parseBlocks(lines, depth + 1)) {
    if (inner.kind === 'paragraph' && !block.loose) item.append(...inlineNodes(inner.text));
    else item.append(blockNode(inner, depth + 1));
  }
  return item;
}

function tableNode(block) {
  const row = (tag, texts) => element('tr', {}, ...texts.map((text, k) => {
    const cell = element(tag, block.align[k] ? { class: 'align-' + block.align[k] } : {});
    cell.append(...inlineNodes(text));
    return cell;
  }));
  return element('div', { class: 'table', tabindex: '0' }, element('table', {},
    element('thead', {}, row('th', block.head)),
    element('tbody', {}, ...block.rows.map((texts) => row('td', texts)))));
}

function blockNode(block, depth = 0) {
  switch (block.kind) {
    case 'code': return codeNode(block);
    case 'math': return element('div', { class: 'math-block' }, mathNode(block.text, true));
    case 'rule': return element('hr');
    case 'heading': return element('h' + Math.min(block.level + 1, 6), {}, ...inlineNodes(block.text));
    case 'quote':
      return element('blockquote', {},
                     ...parseBlocks(block.lines, depth + 1).map((b) => blockNode(b, depth + 1)));
    case 'list': {
      const list = element(block.ordered ? 'ol' : 'ul',
                           block.ordered && block.start !== 1 ? { start: String(block.start) } : {});
      list.append(...block.items.map((lines) => itemNode(lines, block, depth)));
      return list;
    }
    case 'table': return tableNode(block);
    default: return element('p', {}, ...inlineNodes(block.text));
  }
}

/// Shows `text` in `container`, leaving the nodes of blocks that did not change where they are.
export function renderMarkdown(container, text) {
  const blocks = parseBlocks(text.replace(/\r\n?/g, '\n').split('\n'));
  const shown = container.shownBlocks || [];
  let same = 0;
  while (same < shown.length && same < blocks.length && shown[same].source === blocks[same].source)
    same++;
  for (const old of shown.slice(same)) old.node.remove();
  const fresh = blocks.slice(same).map((block) => ({ source: block.source, node: blockNode(block) }));
  container.append(...fresh.map((entry) => entry.node));
  container.shownBlocks = [...shown.slice(0, same), ...fresh];
}
