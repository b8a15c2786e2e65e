// The panel at the right: system prompt, thinking, sampling, tools, further fields; and the request body
// that they and a conversation make. An empty field is not sent: profile and checkpoint then decide.
import { element } from './dom.js';

const NUMBERS = [  // as the server bounds them
  { name: 'temperature', label: 'Temperature', least: 0, most: 100, step: 0.05 },
  { name: 'top_p', label: 'Top-p', least: 0, most: 1, step: 0.01 },
  { name: 'top_k', label: 'Top-k', least: 0, most: 100000, step: 1 },
  { name: 'min_p', label: 'Min-p', least: 0, most: 1, step: 0.01 },
  { name: 'presence_penalty', label: 'Presence penalty', least: -2, most: 2, step: 0.1 },
  { name: 'frequency_penalty', label: 'Frequency penalty', least: -2, most: 2, step: 0.1 },
  { name: 'repetition_penalty', label: 'Repetition penalty', least: 0.01, most: 10, step: 0.01 },
  { name: 'seed', label: 'Seed', least: 0, most: 4294967295, step: 1 },
  { name: 'max_tokens', label: 'Longest answer', least: 1, most: 2147483647, step: 1 },
];
const BUDGET = { name: 'thinking_token_budget', label: 'Thinking budget', least: 0, most: 2147483647, step: 1 };

function parsed(text, kind) {
  if (!text || !text.trim()) return { value: undefined };
  try {
    const value = JSON.parse(text);
    const fits = kind === 'list' ? Array.isArray(value)
                                 : value !== null && typeof value === 'object' && !Array.isArray(value);
    if (fits) return { value };
  } catch { /* told below */ }
  return { problem: kind === 'list' ? 'not a JSON list' : 'not a JSON object' };
}

/// Why the settings cannot be sent, or ''.
export function settingsProblem(settings) {
  const tools = parsed(settings.tools, 'list').problem;
  const extra = parsed(settings.extra, 'object').problem;
  return tools ? 'Tools: ' + tools : extra ? 'Further fields: ' + extra : '';
}

function apiMessage(node) {
  if (node.role === 'tool') return { role: 'tool', tool_call_id: node.call_id, content: node.content };
  if (node.role === 'user') {
    if (!node.images || !node.images.length) return { role: 'user', content: node.content };
    return { role: 'user', content: [
      ...node.images.map((url) => ({ type: 'image_url', image_url: { url } })),
      { type: 'text', text: node.content }] };
  }
  const message = { role: 'assistant', content: node.content };
  if (node.reasoning) message.reasoning_content = node.reasoning;
  if (node.calls && node.calls.length)
    message.tool_calls = node.calls.map((call) => ({ id: call.id, type: 'function',
      function: { name: call.name, arguments: call.arguments } }));
  return message;
}

/// The request for what follows message `last` of the conversation.
export function requestBody(conversation, last) {
  const { settings } = conversation;
  const body = { model: settings.model, messages: conversation.pathTo(last).map(apiMessage) };
  if (settings.system && settings.system.trim())
    body.messages.unshift({ role: 'system', content: settings.system });
  for (const { name } of [...NUMBERS, BUDGET])
    if (Number.isFinite(settings[name])) body[name] = settings[name];
  if (settings.thinking === 'on') body.enable_thinking = true;
  if (settings.thinking === 'off') body.enable_thinking = false;
  const stops = (settings.stop || '').split('\n').filter((line) => line);
  if (stops.length) body.stop = stops;
  const tools = parsed(settings.tools, 'list').value;
  if (tools && tools.length) body.tools = tools;
  return Object.assign(body, parsed(settings.extra, 'object').value || {});
}

function field(label, control, hint) {
  return element('label', { class: 'field' }, element('span', { class: 'field-name' }, label), control,
                 ...(hint ? [element('span', { class: 'hint' }, hint)] : []));
}

function numberField(spec, settings, changed) {
  const input = element('input', { type: 'number', min: spec.least, max: spec.most, step: spec.step,
                                   placeholder: 'default', id: 'set-' + spec.name, inputmode: 'decimal' });
  if (Number.isFinite(settings[spec.name])) input.value = settings[spec.name];
  input.addEventListener('input', () => {
    const value = input.value.trim() === '' ? NaN : Number(input.value);
    const whole = spec.step !== 1 || Number.isInteger(value);
    const fits = whole && value >= spec.least && value <= spec.most;
    input.classList.toggle('wrong', input.value.trim() !== '' && !fits);
    if (fits) settings[spec.name] = value;
    else delete settings[spec.name];
    changed();
  });
  return field(spec.label, input);
}

function textField(name, label, settings, changed, attributes, check, hint) {
  const area = element('textarea', { id: 'set-' + name, spellcheck: 'false', ...attributes });
  area.value = settings[name] || '';
  const problem = element('span', { class: 'problem', role: 'alert' });
  const judge = () => { problem.textContent = (check && check(area.value)) || ''; };
  area.addEventListener('input', () => {
    settings[name] = area.value;
    judge();
    changed();
  });
  judge();
  const made = field(label, area, hint);
  made.append(problem);
  return made;
}

function thinkingField(settings, changed) {
  const group = element('div', { class: 'segments', role: 'radiogroup', 'aria-label': 'Thinking' });
  for (const [value, label] of [['', 'Profile'], ['on', 'On'], ['off', 'Off']]) {
    const button = element('button', { type: 'button', role: 'radio', 'data-thinking': value || 'profile' }, label);
    const mark = () => button.setAttribute('aria-checked', String((settings.thinking || '') === value));
    button.addEventListener('click', () => {
      settings.thinking = value;
      changed();
      group.dispatchEvent(new Event('chosen'));
    });
    group.addEventListener('chosen', mark);
    mark();
    group.append(button);
  }
  return element('div', { class: 'field' }, element('span', { class: 'field-name' }, 'Thinking'), group);
}

/// Fills the panel with the fields of `settings`; `changed` is called after every change.
export function showSettings(panel, settings, changed) {
  const numbers = element('div', { class: 'numbers' },
                          ...NUMBERS.map((spec) => numberField(spec, settings, changed)));
  const reset = element('button', { type: 'button', class: 'quiet' }, 'Reset to defaults');
  reset.addEventListener('click', () => {
    for (const name of Object.keys(settings)) if (name !== 'model') delete settings[name];
    changed();
    showSettings(panel, settings, changed);
  });
  const tools = '[{"type":"function","function":{"name":"…","parameters":{…}}}]';
  panel.replaceChildren(
    textField('system', 'System prompt', settings, changed,
              { rows: 5, placeholder: 'How the model should behave' }),
    thinkingField(settings, changed),
    element('div', { class: 'numbers' }, numberField(BUDGET, settings, changed)),
    element('h3', {}, 'Sampling'),
    numbers,
    element('details', { class: 'more', ...(settings.tools || settings.extra || settings.stop ? { open: '' } : {}) },
      element('summary', {}, 'Tools, stops, further fields'),
      textField('tools', 'Tools', settings, changed, { rows: 4, class: 'mono', placeholder: tools },
                (text) => parsed(text, 'list').problem, 'A JSON list, as in the API'),
      textField('stop', 'Stop strings', settings, changed, { rows: 2, class: 'mono' }, null, 'One a line'),
      textField('extra', 'Further fields', settings, changed,
                { rows: 3, class: 'mono', placeholder: '{"response_format": {"type": "json_object"}}' },
                (text) => parsed(text, 'object').problem, 'A JSON object, added to the request')),
    reset);
}
