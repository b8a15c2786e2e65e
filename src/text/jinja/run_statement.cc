// Execution of statements, and Program, the face of the interpreter.
#include <algorithm>

#include "text/jinja/evaluator.h"
#include "text/jinja/parser.h"
#include "text/jinja/print.h"
#include "text/jinja/unicode.h"

namespace nibble::jinja {

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent) {
    for (const auto& [key, value] : scope->variables) {
      if (key == name) return &value;
    }
  }
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  for (auto& [key, slot] : variables) {
    if (key != name) continue;
    slot = std::move(value);
    return;
  }
  variables.emplace_back(std::string(name), std::move(value));
}

Result<Flow> Evaluator::run(const Block& block, Scope& scope, Text& out) {
  for (const auto& node : block) {
    TRY(runtime_.enter());
    auto flow = statement(*node, scope, out);
    runtime_.leave();
    if (!flow.ok() && error_line_ == 0) error_line_ = node->line;
    if (!flow.ok() || flow.value() != Flow::next) return flow;
  }
  return Flow::next;
}

Result<Flow> Evaluator::statement(const Statement& node, Scope& scope, Text& out) {
  switch (node.kind) {
    case StatementKind::text:
      TRY(output(node.text, out));
      break;
    case StatementKind::output: {
      const Value value = TRY(eval(*node.expr, scope));
      TRY(output(value, out));
      break;
    }
    case StatementKind::assign: {
      const Value value = TRY(eval(*node.expr, scope));
      TRY(assign(node.target, value, scope));
      break;
    }
    case StatementKind::assign_block:
    case StatementKind::filter_block:
      return captured(node, scope, out);
    case StatementKind::for_loop:
      return for_loop(node, scope, out);
    case StatementKind::if_chain:
      return if_chain(node, scope, out);
    case StatementKind::macro: {
      Callable macro{.kind = Callable::Kind::macro, .name = node.name, .macro = &node};
      scope.set(node.name, Value(std::make_shared<const Callable>(std::move(macro))));
      break;
    }
    case StatementKind::with:
    case StatementKind::scope: {
      Scope inner{.parent = &scope, .variables = {}};
      TRY(with_variables(node, scope, inner));
      return run(node.body, inner, out);
    }
    case StatementKind::break_loop:
      return Flow::break_loop;
    case StatementKind::continue_loop:
      return Flow::continue_loop;
  }
  return Flow::next;
}

Result<void> Evaluator::output(const Value& value, Text& out) {
  out.append(TRY(to_text(runtime_, value)));
  if (out.size() <= runtime_.limits().output_bytes_max) return {};
  return fail(concat("the template makes a text of more than ", runtime_.limits().output_bytes_max,
                     " bytes"));
}

Result<std::vector<Value>> Evaluator::loop_items(const Statement& node, Scope& scope) {
  const Value iterable = TRY(eval(*node.expr, scope));
  std::vector<Value> items = TRY(iterate(runtime_, iterable));
  if (!node.condition) return items;
  std::vector<Value> kept;
  for (Value& item : items) {
    Scope inner{.parent = &scope, .variables = {}};
    TRY(assign(node.target, item, inner));
    if (truthy(TRY(eval(*node.condition, inner)))) kept.push_back(std::move(item));
  }
  return kept;
}

Result<Flow> Evaluator::for_loop(const Statement& node, Scope& scope, Text& out) {
  std::vector<Value> visited = TRY(loop_items(node, scope));
  const Value items = TRY(runtime_.list(std::move(visited)));
  const auto loop = std::make_shared<Loop>();
  const Sequence& sequence = items.as_sequence();
  loop->items = items.shared_sequence();
  bool completed = false;  // as in Jinja: an iteration ran to its end
  for (size_t i = 0; i < sequence.items.size(); ++i) {
    loop->index0 = i;
    Scope inner{.parent = &scope, .variables = {}};
    TRY(assign(node.target, sequence.items[i], inner));
    inner.set("loop", Value(loop));
    const Flow flow = TRY(run(node.body, inner, out));
    if (flow == Flow::break_loop) break;
    if (flow == Flow::next) completed = true;
  }
  loop->changed.clear();
  if (completed || node.else_body.empty()) return Flow::next;
  Scope inner{.parent = &scope, .variables = {}};
  return run(node.else_body, inner, out);
}

Result<Flow> Evaluator::if_chain(const Statement& node, Scope& scope, Text& out) {
  for (const Branch& branch : node.branches) {
    if (!branch.condition || truthy(TRY(eval(*branch.condition, scope)))) {
      return run(branch.body, scope, out);
    }
  }
  return Flow::next;
}

/// {% set x %}...{% endset %} and {% filter f %}...{% endfilter %}.
Result<Flow> Evaluator::captured(const Statement& node, Scope& scope, Text& out) {
  Text text;
  Scope inner{.parent = &scope, .variables = {}};
  const Flow flow = TRY(run(node.body, inner, text));
  if (flow != Flow::next) return flow;
  Value value = TRY(runtime_.text(std::move(text)));
  if (node.expr) {
    const Value subject = value;
    const Value* outer = std::exchange(block_text_, &subject);
    auto filtered = eval(*node.expr, inner);
    block_text_ = outer;
    value = TRY(std::move(filtered));
  }
  if (node.kind == StatementKind::assign_block) {
    TRY(assign(node.target, value, scope));
  } else {
    TRY(output(value, out));
  }
  return Flow::next;
}

Result<void> Evaluator::with_variables(const Statement& node, Scope& scope, Scope& inner) {
  for (const auto& [target, expr] : node.assignments) {
    const Value value = TRY(eval(*expr, scope));
    TRY(assign(target, value, inner));
  }
  return {};
}

Result<void> Evaluator::assign(const Target& target, const Value& value, Scope& scope) {
  if (!target.items.empty()) {
    if (value.is(Kind::none) || value.is_number() || value.is(Kind::callable) ||
        value.is(Kind::name_space) || value.is(Kind::loop)) {
      return fail(concat("cannot unpack non-iterable ", type_name(value), " object"));
    }
    const std::vector<Value> items = TRY(iterate(runtime_, value));
    if (items.size() > target.items.size()) {
      return fail(concat("too many values to unpack (expected ", target.items.size(), ")"));
    }
    if (items.size() < target.items.size()) {
      return fail(concat("not enough values to unpack (expected ", target.items.size(), ", got ",
                         items.size(), ")"));
    }
    for (size_t i = 0; i < items.size(); ++i) TRY(assign(target.items[i], items[i], scope));
    return {};
  }
  if (target.attribute.empty()) {
    scope.set(target.name, value);
    return {};
  }
  const Value* name_space = scope.find(target.name);
  if (name_space == nullptr || !name_space->is(Kind::name_space)) {
    return fail("cannot assign attribute on non-namespace object");
  }
  auto& attributes = name_space->as_namespace().attributes;
  const auto found =
      std::ranges::find(attributes, target.attribute, &std::pair<std::string, Value>::first);
  if (found != attributes.end()) {
    found->second = value;
  } else {
    attributes.emplace_back(target.attribute, value);
  }
  return {};
}

Result<Program> Program::parse(std::string_view source, std::string_view name,
                               const TemplateLimits& limits) {
  Program program;
  program.name_ = name;
  program.body_ = TRY(jinja::parse(source, name, limits));
  return program;
}

Result<Text> Program::render(Runtime& runtime, Variables variables) const {
  Scope root{.parent = nullptr, .variables = std::move(variables)};
  Evaluator evaluator(runtime, root);
  Text out;
  const auto flow = evaluator.run(body_, root, out);
  if (flow.ok()) return out;
  if (runtime.raised()) return flow.error();
  constexpr size_t kMessageMax = 2000;  // it may quote a user's text
  std::string message = flow.error().message;
  if (message.size() > kMessageMax) {
    message.resize(previous_character(message, kMessageMax));
    message += "...";
  }
  return Error{flow.error().code,
               concat(message, " (", name_, ", line ", evaluator.error_line(), ")")};
}

}  // namespace nibble::jinja
