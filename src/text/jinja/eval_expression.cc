// Evaluation of expressions.
#include <algorithm>

#include "text/jinja/access.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/globals.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace nibble::jinja {

Result<Value> Evaluator::eval(const Expr& node, Scope& scope) {
  auto entered = runtime_.enter();
  if (!entered.ok()) {
    if (error_line_ == 0) error_line_ = node.line;
    return std::move(entered).error();
  }
  auto value = dispatch(node, scope);
  runtime_.leave();
  if (!value.ok() && error_line_ == 0) error_line_ = node.line;
  return value;
}

Result<Value> Evaluator::dispatch(const Expr& node, Scope& scope) {
  switch (node.kind) {
    case ExprKind::constant:
      return node.constant;
    case ExprKind::name:
      return name(node, scope);
    case ExprKind::list:
    case ExprKind::tuple:
      return sequence(node, scope);
    case ExprKind::dict:
      return dict(node, scope);
    case ExprKind::attribute:
      return get_attribute(runtime_, TRY(eval(*node.operands[0], scope)), node.name);
    case ExprKind::item:
      return item(node, scope);
    case ExprKind::call:
      return call(node, scope);
    case ExprKind::filter:
      return filter(node, scope);
    case ExprKind::test:
      return test(node, scope);
    case ExprKind::negative:
      return negate(TRY(eval(*node.operands[0], scope)));
    case ExprKind::positive:
      return plus(TRY(eval(*node.operands[0], scope)));
    case ExprKind::logical_not:
      return Value(!truthy(TRY(eval(*node.operands[0], scope))));
    case ExprKind::logical_and:
    case ExprKind::logical_or:
      return logical(node, scope);
    case ExprKind::binary:
      return binary(node, scope);
    case ExprKind::concat:
      return concatenation(node, scope);
    case ExprKind::compare:
      return comparison(node, scope);
    case ExprKind::conditional:
      return conditional(node, scope);
    case ExprKind::slice:
      break;
  }
  CHECK(false, "a slice outside a subscript");
}

Result<Value> Evaluator::name(const Expr& node, const Scope& scope) {
  if (const Value* value = scope.find(node.name)) return *value;
  if (auto global = find_global(node.name)) return std::move(*global);
  return Value::undefined(concat(repr_text(node.name), " is undefined"));
}

Result<Value> Evaluator::sequence(const Expr& node, Scope& scope) {
  std::vector<Value> items;
  for (const ExprPtr& operand : node.operands) items.push_back(TRY(eval(*operand, scope)));
  if (node.kind == ExprKind::list) return runtime_.list(std::move(items));
  return runtime_.list(std::move(items), SequenceKind::tuple, "tuple");
}

Result<Value> Evaluator::dict(const Expr& node, Scope& scope) {
  std::vector<DictEntry> entries;
  for (size_t i = 0; i < node.operands.size(); i += 2) {
    Value key = TRY(eval(*node.operands[i], scope));
    entries.push_back({std::move(key), TRY(eval(*node.operands[i + 1], scope))});
  }
  return runtime_.dict(std::move(entries));
}

Result<Value> Evaluator::item(const Expr& node, Scope& scope) {
  const Value base = TRY(eval(*node.operands[0], scope));
  const Expr& index = *node.operands[1];
  if (index.kind != ExprKind::slice) {
    return get_item(runtime_, base, TRY(eval(index, scope)));
  }
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (index.operands[i]) bounds[i] = TRY(eval(*index.operands[i], scope));
  }
  return get_slice(runtime_, base, bounds);
}

Result<Arguments> Evaluator::arguments(const Expr& node, Scope& scope) {
  Arguments out;
  for (const Argument& argument : node.arguments) {
    Value value = TRY(eval(*argument.value, scope));
    if (argument.name.empty()) {
      out.positional.push_back(std::move(value));
    } else {
      out.keyword.emplace_back(argument.name, std::move(value));
    }
  }
  return out;
}

Result<Value> Evaluator::call(const Expr& node, Scope& scope) {
  const Value function = TRY(eval(*node.operands[0], scope));
  Arguments given = TRY(arguments(node, scope));
  if (function.is(Kind::undefined)) return fail(function.undefined_message());
  if (function.is(Kind::loop)) {
    return fail("The loop must have the 'recursive' marker to be called recursively.");
  }
  if (!function.is(Kind::callable)) {
    return fail(concat("'", type_name(function), "' object is not callable"));
  }
  const Callable& callable = function.as_callable();
  if (callable.kind == Callable::Kind::method) return call_method(runtime_, callable, given);
  if (callable.kind == Callable::Kind::global) return call_global(runtime_, callable, given);
  return call_macro(*callable.macro, std::move(given));
}

Result<Value> Evaluator::call_macro(const Statement& macro, Arguments given) {
  TRY(runtime_.enter_macro());
  Scope scope{.parent = &root_, .variables = {}};
  const size_t taken = std::min(given.positional.size(), macro.parameters.size());
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    const auto keyword =
        std::ranges::find(given.keyword, parameter.name, &std::pair<std::string, Value>::first);
    Value value;
    if (i < taken) {
      value = given.positional[i];
    } else if (keyword != given.keyword.end()) {
      value = keyword->second;
      given.keyword.erase(keyword);
    } else if (parameter.fallback) {
      value = TRY(eval(*parameter.fallback, scope));
    } else {
      value =
          Value::undefined(concat("parameter ", repr_text(parameter.name), " was not provided"));
    }
    scope.set(parameter.name, std::move(value));
  }
  if (macro.uses_kwargs) {
    std::vector<DictEntry> rest;
    for (auto& [key, value] : given.keyword) rest.push_back({Value(Text(key)), std::move(value)});
    scope.set("kwargs", TRY(runtime_.dict(std::move(rest))));
  } else if (!given.keyword.empty()) {
    return fail(concat("macro ", repr_text(macro.name), " takes no keyword argument ",
                       repr_text(given.keyword.front().first)));
  }
  if (macro.uses_varargs) {
    std::vector<Value> rest(given.positional.begin() + static_cast<ptrdiff_t>(taken),
                            given.positional.end());
    scope.set("varargs", TRY(runtime_.list(std::move(rest), SequenceKind::tuple, "tuple")));
  } else if (given.positional.size() > taken) {
    return fail(concat("macro ", repr_text(macro.name), " takes not more than ",
                       macro.parameters.size(), " argument(s)"));
  }
  Text out;
  TRY(run(macro.body, scope, out));
  runtime_.leave_macro();
  return runtime_.text(std::move(out));
}

Result<Value> Evaluator::filter(const Expr& node, Scope& scope) {
  const Value subject = node.operands[0] ? TRY(eval(*node.operands[0], scope)) : *block_text_;
  return node.filter(runtime_, subject, TRY(arguments(node, scope)));
}

Result<Value> Evaluator::test(const Expr& node, Scope& scope) {
  const Value subject = TRY(eval(*node.operands[0], scope));
  const Arguments given = TRY(arguments(node, scope));
  return Value(TRY(node.test(runtime_, subject, given)));
}

Result<Value> Evaluator::logical(const Expr& node, Scope& scope) {
  Value left = TRY(eval(*node.operands[0], scope));
  const bool decided = truthy(left) == (node.kind == ExprKind::logical_or);
  if (decided) return left;
  return eval(*node.operands[1], scope);
}

Result<Value> Evaluator::binary(const Expr& node, Scope& scope) {
  const Value left = TRY(eval(*node.operands[0], scope));
  const Value right = TRY(eval(*node.operands[1], scope));
  return arithmetic(runtime_, node.ops[0], left, right);
}

Result<Value> Evaluator::concatenation(const Expr& node, Scope& scope) {
  Text out;
  for (const ExprPtr& operand : node.operands) {
    const Value value = TRY(eval(*operand, scope));
    out.append(TRY(to_text(runtime_, value)));
    if (out.size() > runtime_.limits().output_bytes_max) break;
  }
  return runtime_.text(std::move(out));
}

Result<Value> Evaluator::comparison(const Expr& node, Scope& scope) {
  Value left = TRY(eval(*node.operands[0], scope));
  for (size_t i = 0; i < node.ops.size(); ++i) {
    Value right = TRY(eval(*node.operands[i + 1], scope));
    if (!TRY(compare(runtime_, node.ops[i], left, right))) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Result<Value> Evaluator::conditional(const Expr& node, Scope& scope) {
  if (truthy(TRY(eval(*node.operands[1], scope)))) return eval(*node.operands[0], scope);
  if (node.operands[2]) return eval(*node.operands[2], scope);
  return Value::undefined(concat("the inline if-expression on line ", node.line,
                                 " evaluated to false and no else section was defined."));
}

}  // namespace nibble::jinja
