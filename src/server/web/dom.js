// The smallest help with DOM nodes. Strings become text nodes, never markup.

export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes))
    if (value !== undefined && value !== null) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const SVG = 'http://www.w3.org/2000/svg';
const ICONS = {
  plus: 'M12 5v14M5 12h14',
  send: 'M12 19V5M6 11l6-6 6 6',
  stop: 'M7 7h10v10H7z',
  edit: 'M4 20h4L19 9l-4-4L4 16zM13 7l4 4',
  retry: 'M4 12a8 8 0 1 0 3-6.2M4 4v5h5',
  copy: 'M9 9h10v11H9zM5 15V4h10',
  left: 'M14 6l-6 6 6 6',
  right: 'M10 6l6 6-6 6',
  trash: 'M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13',
  menu: 'M4 7h16M4 12h16M4 17h16',
  tune: 'M4 7h9M17 7h3M4 17h3M11 17h9M15 5v4M9 15v4',
  gauge: 'M4 18a8 8 0 1 1 16 0M12 18l4-6',
  book: 'M5 4h6a2 2 0 0 1 1 2 2 2 0 0 1 1-2h6v14h-6a2 2 0 0 0-1 2 2 2 0 0 0-1-2H5z',
  theme: 'M12 4a8 8 0 1 0 8 8 6 6 0 0 1-8-8z',
  image: 'M4 5h16v14H4zM4 16l5-5 4 4 3-3 4 4M15 9h.01',
  down: 'M12 5v14M6 13l6 6 6-6',
  up: 'M12 4v11M7 9l5-5 5 5M5 20h14',
  save: 'M12 4v11M7 10l5 5 5-5M5 20h14',
  key: 'M14 10a4 4 0 1 0-3 3.9l2 2.1h2v2h2v2h3v-3l-6-6z',
  close: 'M6 6l12 12M18 6L6 18',
  tool: 'M14 6a4 4 0 0 0-5 5l-5 5 4 4 5-5a4 4 0 0 0 5-5l-3 2-3-1-1-3z',
  spark: 'M12 4l2 6 6 2-6 2-2 6-2-6-6-2 6-2z',
};

export function icon(name) {
  const svg = document.createElementNS(SVG, 'svg');
  for (const [key, value] of Object.entries({ viewBox: '0 0 24 24', class: 'icon', 'aria-hidden': 'true' }))
    svg.setAttribute(key, value);
  const path = document.createElementNS(SVG, 'path');
  path.setAttribute('d', ICONS[name]);
  svg.append(path);
  return svg;
}

/// A button with an icon, and a name for those who do not see it.
export function iconButton(name, label, action, extra = {}) {
  const button = element('button', { type: 'button', class: 'icon-button', 'aria-label': label,
                                     title: label, ...extra }, icon(name));
  if (action) button.addEventListener('click', action);
  return button;
}

/// A picture of lines: values in time, the newest at the right.
export function sparkline(values, most, width = 240, height = 48) {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
  svg.setAttribute('class', 'spark');
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('aria-hidden', 'true');
  const count = 120;
  const point = (value, k) => [width * (count - values.length + k) / (count - 1),
                               height - 2 - (height - 6) * (most > 0 ? value / most : 0)];
  const points = values.map(point).map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`);
  if (points.length > 1) {
    const first = points[0].split(',')[0];
    for (const [tag, list] of [['polygon', [`${first},${height}`, ...points, `${width},${height}`]],
                               ['polyline', points]]) {
      const shape = document.createElementNS(SVG, tag);
      shape.setAttribute('points', list.join(' '));
      svg.append(shape);
    }
  }
  return svg;
}

export function download(name, text, type = 'application/json') {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const anchor = element('a', { href: address, download: name });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

export async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without https on another host there is no clipboard API: the old way.
    const area = element('textarea', { class: 'off-screen', readonly: '' });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
  if (!button) return;
  button.classList.add('done');
  setTimeout(() => button.classList.remove('done'), 1400);
}
