// What the page asks of the server: JSON answers and the stream of a chat. The key, if one is needed, is
// kept for this tab, or in this browser if the person says so.

import { forget, recall, remember } from './memory.js';

const KEY = 'nibble-key';
const TAB_KEY = 'nibble-key-of-this-tab';

export class ApiFailure extends Error {
  constructor(status, message, code) {
    super(message);
    this.status = status;
    this.code = code || '';
  }
}

export function savedKey() {
  return recall(TAB_KEY, true) || recall(KEY) || '';
}

export function saveKey(key, forever) {
  remember(TAB_KEY, key, true);
  if (forever) remember(KEY, key);
  else forget(KEY);
}

function headers(extra) {
  const key = savedKey();
  return { ...extra, ...(key ? { authorization: 'Bearer ' + key } : {}) };
}

async function failureOf(response) {
  let message = `status ${response.status}`, code = '';
  try {
    const { error } = await response.json();
    message = error.message || message;
    code = error.code || '';
  } catch { /* not our JSON: the status must do */ }
  return new ApiFailure(response.status, message, code);
}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiFailure(0, 'the server does not answer: it may have been stopped');
  }
  if (!response.ok) throw await failureOf(response);
  return response;
}

export async function getJson(path, signal) {
  return (await ask(path, { headers: headers({}), signal })).json();
}

/// The lines of a stream's `data:` fields, one event at a time.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    let end;
    while ((end = rest.indexOf('\n\n')) >= 0) {
      const data = rest.slice(0, end).split('\n').filter((line) => line.startsWith('data:'))
        .map((line) => line.slice(5).trimStart()).join('\n');
      rest = rest.slice(end + 2);
      if (data) yield data;
    }
  }
}

/// Streams a chat completion. `on.delta(delta)` for each piece, `on.finish(reason)`, `on.usage(usage)`
/// for the counts so far, `on.timings(timings)` at the end, `on.progress(progress)` while a long prompt is computed.
export async function streamChat(body, signal, on) {
  const response = await ask('/v1/chat/completions', {
    method: 'POST', signal, headers: headers({ 'content-type': 'application/json' }),
    body: JSON.stringify({ ...body, stream: true, return_progress: true,
                           stream_options: { include_usage: true, continuous_usage_stats: true } }),
  });
  for await (const data of events(response.body)) {
    if (data === '[DONE]') return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ApiFailure(500, chunk.error.message || 'the server reports an error');
    const choice = chunk.choices && chunk.choices[0];
    if (choice && choice.delta) on.delta(choice.delta);
    if (choice && choice.finish_reason) on.finish(choice.finish_reason);
    if (chunk.usage) on.usage(chunk.usage);
    if (chunk.timings) on.timings(chunk.timings);
    if (chunk.prompt_progress) on.progress(chunk.prompt_progress);
  }
}
