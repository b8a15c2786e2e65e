// The evaluator's class, shared by eval_expression.cc and run_statement.cc alone: walks the AST
// with scopes on the C++ stack. Macros live at the top level only: the root scope outlives them.
#pragma once

#include <string_view>

#include "text/jinja/interpreter.h"

namespace nibble::jinja {

struct Scope {
  const Scope* parent = nullptr;
  Variables variables;

  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

enum class Flow { next, break_loop, continue_loop };

class Evaluator {
 public:
  Evaluator(Runtime& runtime, Scope& root) : runtime_(runtime), root_(root) {}

  Result<Flow> run(const Block& block, Scope& scope, Text& out);
  int error_line() const { return error_line_; }

 private:
  // Statements.
  Result<Flow> statement(const Statement& node, Scope& scope, Text& out);
  Result<void> output(const Value& value, Text& out);
  Result<Flow> for_loop(const Statement& node, Scope& scope, Text& out);
  Result<std::vector<Value>> loop_items(const Statement& node, Scope& scope);
  Result<Flow> if_chain(const Statement& node, Scope& scope, Text& out);
  Result<Flow> captured(const Statement& node, Scope& scope, Text& out);
  Result<void> with_variables(const Statement& node, Scope& scope, Scope& inner);
  Result<void> assign(const Target& target, const Value& value, Scope& scope);

  // Expressions.
  Result<Value> eval(const Expr& node, Scope& scope);
  Result<Value> dispatch(const Expr& node, Scope& scope);
  Result<Value> name(const Expr& node, const Scope& scope);
  Result<Value> sequence(const Expr& node, Scope& scope);
  Result<Value> dict(const Expr& node, Scope& scope);
  Result<Value> item(const Expr& node, Scope& scope);
  Result<Value> call(const Expr& node, Scope& scope);
  Result<Value> call_macro(const Statement& macro, Arguments arguments);
  Result<Value> filter(const Expr& node, Scope& scope);
  Result<Value> test(const Expr& node, Scope& scope);
  Result<Value> logical(const Expr& node, Scope& scope);
  Result<Value> binary(const Expr& node, Scope& scope);
  Result<Value> concatenation(const Expr& node, Scope& scope);
  Result<Value> comparison(const Expr& node, Scope& scope);
  Result<Value> conditional(const Expr& node, Scope& scope);
  Result<Arguments> arguments(const Expr& node, Scope& scope);

  Runtime& runtime_;
  Scope& root_;
  const Value* block_text_ = nullptr;  // what a filter chain without operand applies to
  int error_line_ = 0;
};

}  // namespace nibble::jinja
