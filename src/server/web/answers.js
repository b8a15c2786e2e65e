// Answers in progress: one per conversation, streamed into its message while any view may watch.
import { streamChat } from './api.js';
import { requestBody } from './settings.js';

function addCall(node, delta) {
  node.calls = node.calls || [];
  const at = Number.isInteger(delta.index) && delta.index >= 0 && delta.index < 1000 ? delta.index : 0;
  while (node.calls.length <= at) node.calls.push({ id: '', name: '', arguments: '' });
  const call = node.calls[at];
  if (delta.id) call.id = delta.id;
  if (delta.function && delta.function.name) call.name = delta.function.name;
  if (delta.function && delta.function.arguments) call.arguments += delta.function.arguments;
}

export class Answers {
  /// `changed(conversation, node)` after each piece; `ended(conversation, node)` once.
  constructor(changed, ended) {
    this.changed = changed;
    this.ended = ended;
    this.running = new Map();  // conversation id -> AbortController
  }

  runs(conversation) { return this.running.has(conversation.id); }

  stop(conversation) {
    const controller = this.running.get(conversation.id);
    if (controller) controller.abort();
  }

  /// Adds an assistant's message below `parent` and fills it.
  async start(conversation, parent) {
    if (this.runs(conversation)) return;
    const body = requestBody(conversation, parent);
    const node = conversation.add(parent, { role: 'assistant', model: conversation.settings.model });
    const controller = new AbortController();
    this.running.set(conversation.id, controller);
    const begin = performance.now();
    let thought = 0;
    const first = () => {
      if (node.first_ms === undefined) node.first_ms = performance.now() - begin;
    };
    node.live = { begin };
    this.changed(conversation, node);
    try {
      await streamChat(body, controller.signal, {
        delta: (delta) => {
          const reasoning = delta.reasoning_content ?? delta.reasoning;
          if (reasoning) {
            first();
            thought = thought || performance.now();
            node.reasoning = (node.reasoning || '') + reasoning;
            node.reasoning_ms = performance.now() - thought;
          }
          if (delta.content) { first(); node.content += delta.content; }
          for (const call of delta.tool_calls || []) { first(); addCall(node, call); }
          this.changed(conversation, node);
        },
        finish: (reason) => { node.finish = reason; },
        progress: ({ total, processed }) => {
          if (total > 0) node.live.prompt = Math.min(1, processed / total);
          this.changed(conversation, node);
        },
        usage: (usage) => {
          node.usage = { prompt_tokens: usage.prompt_tokens, completion_tokens: usage.completion_tokens,
                         total_tokens: usage.total_tokens };
          const details = usage.prompt_tokens_details;
          if (details) node.usage.cached_tokens = details.cached_tokens;
        },
        timings: (timings) => {
          if (timings.predicted_n > 1) node.rate = timings.predicted_per_second;
        },
      });
      if (!node.finish) node.error = 'the answer broke off: the connection ended before it did';
    } catch (error) {
      if (error.name === 'AbortError') node.finish = 'stopped';
      else {
        node.error = error.message;
        node.status = error.status;
      }
    }
    node.total_ms = performance.now() - begin;
    delete node.live;
    this.running.delete(conversation.id);
    conversation.updated = Date.now();
    this.ended(conversation, node);
  }
}
