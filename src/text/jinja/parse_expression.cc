// Expressions: Jinja's precedence climbing, one function per level.
#include <algorithm>
#include <charconv>

#include "text/jinja/filters.h"
#include "text/jinja/globals.h"
#include "text/jinja/methods.h"
#include "text/jinja/parser_impl.h"
#include "text/jinja/tests.h"

namespace nibble::jinja {

namespace {

Expr node(ExprKind kind, int line) {
  Expr out;
  out.kind = kind;
  out.line = line;
  return out;
}

}  // namespace

Result<ExprPtr> Parser::make(Expr&& expr) const {
  for (const ExprPtr& operand : expr.operands) {
    if (operand) expr.depth = std::max(expr.depth, operand->depth + 1);
  }
  for (const Argument& argument : expr.arguments) {
    expr.depth = std::max(expr.depth, argument.value->depth + 1);
  }
  if (expr.depth > limits_.depth_max) {
    return error(concat("an expression nests deeper than ", limits_.depth_max));
  }
  return ExprPtr(std::make_unique<const Expr>(std::move(expr)));
}

Result<ExprPtr> Parser::binary(Operator op, int line, ExprPtr left, ExprPtr right) const {
  Expr out = node(ExprKind::binary, line);
  out.ops.push_back(op);
  out.operands.push_back(std::move(left));
  out.operands.push_back(std::move(right));
  return make(std::move(out));
}

Result<void> Parser::enter() {
  if (nesting_ >= limits_.depth_max) {
    return error(concat("the template nests deeper than ", limits_.depth_max));
  }
  ++nesting_;
  return {};
}

bool Parser::at_tuple_end() const {
  const TokenKind kind = current().kind;
  return kind == TokenKind::variable_end || kind == TokenKind::block_end || at_op(")") ||
         at_name("recursive");
}

Result<ExprPtr> Parser::tuple(TupleItems items, Parentheses parentheses) {
  Expr out = node(ExprKind::tuple, current().line);
  bool is_tuple = false;
  for (;;) {
    if (!out.operands.empty()) TRY(expect_op(","));
    if (at_tuple_end()) break;
    out.operands.push_back(
        TRY(items == TupleItems::no_conditional ? or_expression() : expression()));
    if (!at_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !out.operands.empty()) return std::move(out.operands.front());
  if (!is_tuple && parentheses == Parentheses::absent) return unexpected("an expression");
  return make(std::move(out));
}

Result<ExprPtr> Parser::expression() {
  TRY(enter());
  ExprPtr value = TRY(or_expression());
  while (at_name("if")) {
    Expr out = node(ExprKind::conditional, current().line);
    advance();
    out.operands.push_back(std::move(value));
    out.operands.push_back(TRY(or_expression()));
    out.operands.push_back(skip_name("else") ? TRY(expression()) : nullptr);
    value = TRY(make(std::move(out)));
  }
  leave();
  return value;
}

Result<ExprPtr> Parser::or_expression() {
  ExprPtr left = TRY(and_expression());
  while (at_name("or")) {
    Expr out = node(ExprKind::logical_or, current().line);
    advance();
    out.operands.push_back(std::move(left));
    out.operands.push_back(TRY(and_expression()));
    left = TRY(make(std::move(out)));
  }
  return left;
}

Result<ExprPtr> Parser::and_expression() {
  ExprPtr left = TRY(not_expression());
  while (at_name("and")) {
    Expr out = node(ExprKind::logical_and, current().line);
    advance();
    out.operands.push_back(std::move(left));
    out.operands.push_back(TRY(not_expression()));
    left = TRY(make(std::move(out)));
  }
  return left;
}

Result<ExprPtr> Parser::not_expression() {
  if (!at_name("not")) return comparison();
  Expr out = node(ExprKind::logical_not, current().line);
  TRY(enter());
  advance();
  out.operands.push_back(TRY(not_expression()));
  leave();
  return make(std::move(out));
}

Result<ExprPtr> Parser::comparison() {
  static constexpr std::pair<std::string_view, Operator> kOps[] = {
      {"==", Operator::equal},      {"!=", Operator::not_equal}, {"<", Operator::less},
      {"<=", Operator::less_equal}, {">", Operator::greater},    {">=", Operator::greater_equal}};
  Expr out = node(ExprKind::compare, current().line);
  out.operands.push_back(TRY(sum()));
  for (;;) {
    const auto* op =
        std::ranges::find_if(kOps, [&](const auto& pair) { return at_op(pair.first); });
    if (op != std::end(kOps)) {
      advance();
      out.ops.push_back(op->second);
    } else if (skip_name("in")) {
      out.ops.push_back(Operator::in);
    } else if (at_name("not") && tokens_[position_ + 1].kind == TokenKind::name &&
               tokens_[position_ + 1].text == "in") {
      advance();
      advance();
      out.ops.push_back(Operator::not_in);
    } else {
      break;
    }
    out.operands.push_back(TRY(sum()));
  }
  if (out.ops.empty()) return std::move(out.operands.front());
  return make(std::move(out));
}

Result<ExprPtr> Parser::sum() {
  ExprPtr left = TRY(concatenation());
  while (at_op("+") || at_op("-")) {
    const Operator op = at_op("+") ? Operator::add : Operator::subtract;
    const int line = current().line;
    advance();
    ExprPtr right = TRY(concatenation());
    left = TRY(binary(op, line, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExprPtr> Parser::concatenation() {
  Expr out = node(ExprKind::concat, current().line);
  out.operands.push_back(TRY(product()));
  while (skip_op("~")) out.operands.push_back(TRY(product()));
  if (out.operands.size() == 1) return std::move(out.operands.front());
  return make(std::move(out));
}

Result<ExprPtr> Parser::product() {
  static constexpr std::pair<std::string_view, Operator> kOps[] = {{"*", Operator::multiply},
                                                                   {"/", Operator::divide},
                                                                   {"//", Operator::floor_divide},
                                                                   {"%", Operator::modulo}};
  ExprPtr left = TRY(power());
  for (;;) {
    const auto* op =
        std::ranges::find_if(kOps, [&](const auto& pair) { return at_op(pair.first); });
    if (op == std::end(kOps)) return left;
    const int line = current().line;
    advance();
    ExprPtr right = TRY(power());
    left = TRY(binary(op->second, line, std::move(left), std::move(right)));
  }
}

Result<ExprPtr> Parser::power() {
  ExprPtr left = TRY(unary());
  while (at_op("**")) {
    const int line = current().line;
    advance();
    ExprPtr right = TRY(unary());
    left = TRY(binary(Operator::power, line, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExprPtr> Parser::unary(Filters filters) {
  ExprPtr value;
  if (at_op("-") || at_op("+")) {
    Expr out = node(at_op("-") ? ExprKind::negative : ExprKind::positive, current().line);
    TRY(enter());
    advance();
    out.operands.push_back(TRY(unary(Filters::left_to_caller)));
    leave();
    value = TRY(make(std::move(out)));
  } else {
    value = TRY(primary());
  }
  value = TRY(postfix(std::move(value)));
  if (filters == Filters::left_to_caller) return value;
  return filters_and_tests(std::move(value));
}

Result<ExprPtr> Parser::primary() {
  const Token& token = current();
  if (token.kind == TokenKind::name) return name_or_constant();
  if (token.kind == TokenKind::integer || token.kind == TokenKind::floating) return number();
  if (token.kind == TokenKind::string) {
    Expr out = node(ExprKind::constant, token.line);
    std::string text;
    for (; current().kind == TokenKind::string; advance()) text += current().text;
    out.constant = Value(Text(std::move(text)));
    return make(std::move(out));
  }
  if (skip_op("(")) {
    ExprPtr value = TRY(tuple(TupleItems::any, Parentheses::present));
    TRY(expect_op(")"));
    return value;
  }
  if (at_op("[")) return list_literal();
  if (at_op("{")) return dict_literal();
  return unexpected("an expression");
}

Result<ExprPtr> Parser::name_or_constant() {
  Expr out = node(ExprKind::constant, current().line);
  const std::string& name = current().text;
  if (name == "true" || name == "True") {
    out.constant = Value(true);
  } else if (name == "false" || name == "False") {
    out.constant = Value(false);
  } else if (name != "none" && name != "None") {
    out.kind = ExprKind::name;
    out.name = name;
    saw_varargs_ |= name == "varargs";
    saw_kwargs_ |= name == "kwargs";
    if (is_unsupported_global(name)) return unsupported(concat("the function '", name, "'"));
  }
  advance();
  return make(std::move(out));
}

Result<ExprPtr> Parser::number() {
  Expr out = node(ExprKind::constant, current().line);
  const std::string& digits = current().text;
  const char* end = digits.data() + digits.size();
  bool read = false;
  if (current().kind == TokenKind::floating) {
    double value = 0;
    const auto outcome = std::from_chars(digits.data(), end, value);
    read = outcome.ec == std::errc() && outcome.ptr == end;
    out.constant = Value(value);
  } else {
    const char kind = digits.size() > 1 ? static_cast<char>(digits[1] | 0x20) : '0';
    const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
    int64_t value = 0;
    const auto outcome = std::from_chars(digits.data() + (base == 10 ? 0 : 2), end, value, base);
    read = outcome.ec == std::errc() && outcome.ptr == end;
    out.constant = Value(value);
  }
  if (!read) return unsupported(concat("the number ", digits.substr(0, 40)));
  advance();
  return make(std::move(out));
}

Result<ExprPtr> Parser::list_literal() {
  Expr out = node(ExprKind::list, current().line);
  advance();
  while (!at_op("]")) {
    if (!out.operands.empty()) TRY(expect_op(","));
    if (at_op("]")) break;
    out.operands.push_back(TRY(expression()));
  }
  TRY(expect_op("]"));
  return make(std::move(out));
}

Result<ExprPtr> Parser::dict_literal() {
  Expr out = node(ExprKind::dict, current().line);
  advance();
  while (!at_op("}")) {
    if (!out.operands.empty()) TRY(expect_op(","));
    if (at_op("}")) break;
    out.operands.push_back(TRY(expression()));
    TRY(expect_op(":"));
    out.operands.push_back(TRY(expression()));
  }
  TRY(expect_op("}"));
  return make(std::move(out));
}

Result<ExprPtr> Parser::postfix(ExprPtr base) {
  for (;;) {
    if (at_op(".") || at_op("[")) {
      base = TRY(subscript(std::move(base)));
    } else if (at_op("(")) {
      base = TRY(call(std::move(base)));
    } else {
      return base;
    }
  }
}

Result<ExprPtr> Parser::subscript(ExprPtr base) {
  Expr out = node(ExprKind::item, current().line);
  out.operands.push_back(std::move(base));
  if (skip_op(".")) {
    if (current().kind == TokenKind::name) {
      out.kind = ExprKind::attribute;
      out.name = current().text;
      advance();
      return make(std::move(out));
    }
    if (current().kind != TokenKind::integer) return unexpected("a name or a number");
    out.operands.push_back(TRY(number()));
    return make(std::move(out));
  }
  TRY(expect_op("["));
  Expr several = node(ExprKind::tuple, current().line);
  while (!at_op("]")) {
    if (!several.operands.empty()) TRY(expect_op(","));
    several.operands.push_back(TRY(subscript_item()));
  }
  TRY(expect_op("]"));
  if (several.operands.empty()) return error("an empty subscript []");
  if (several.operands.size() == 1) {
    out.operands.push_back(std::move(several.operands.front()));
  } else {
    const auto is_slice = [](const ExprPtr& item) { return item->kind == ExprKind::slice; };
    if (std::ranges::any_of(several.operands, is_slice)) return unsupported("a slice in a tuple");
    out.operands.push_back(TRY(make(std::move(several))));
  }
  return make(std::move(out));
}

Result<ExprPtr> Parser::subscript_item() {
  Expr out = node(ExprKind::slice, current().line);
  ExprPtr first;
  if (!at_op(":")) {
    first = TRY(expression());
    if (!at_op(":")) return first;
  }
  advance();
  const auto at_end = [&] { return at_op(":") || at_op("]") || at_op(","); };
  out.operands.push_back(std::move(first));
  out.operands.push_back(at_end() ? nullptr : TRY(expression()));
  const bool has_step = skip_op(":") && !at_end();
  out.operands.push_back(has_step ? TRY(expression()) : nullptr);
  return make(std::move(out));
}

Result<ExprPtr> Parser::call(ExprPtr base) {
  Expr out = node(ExprKind::call, current().line);
  if (base->kind == ExprKind::attribute && is_unsupported_method(base->name)) {
    return unsupported(concat("the method '", base->name, "'"));
  }
  out.operands.push_back(std::move(base));
  out.arguments = TRY(arguments());
  return make(std::move(out));
}

Result<std::vector<Argument>> Parser::arguments() {
  std::vector<Argument> out;
  TRY(expect_op("("));
  while (!at_op(")")) {
    if (!out.empty()) TRY(expect_op(","));
    if (at_op(")")) break;
    if (at_op("*") || at_op("**")) return unsupported("unpacking of arguments");
    Argument argument;
    const Token& next = tokens_[std::min(position_ + 1, tokens_.size() - 1)];
    if (current().kind == TokenKind::name && next.kind == TokenKind::op && next.text == "=") {
      argument.name = current().text;
      advance();
      advance();
      for (const Argument& other : out) {
        if (other.name == argument.name) return error("a keyword argument is repeated");
      }
    } else if (!out.empty() && !out.back().name.empty()) {
      return error("a positional argument follows a keyword argument");
    }
    argument.value = TRY(expression());
    out.push_back(std::move(argument));
  }
  TRY(expect_op(")"));
  return out;
}

Result<ExprPtr> Parser::filters_and_tests(ExprPtr base) {
  for (;;) {
    if (skip_op("|")) {
      base = TRY(one_filter(std::move(base)));
    } else if (skip_name("is")) {
      base = TRY(one_test(std::move(base)));
    } else if (at_op("(")) {
      base = TRY(call(std::move(base)));
    } else {
      return base;
    }
  }
}

Result<std::string> Parser::dotted_name() {
  std::string name = TRY(expect_name());
  while (skip_op(".")) name += concat(".", TRY(expect_name()));
  return name;
}

Result<ExprPtr> Parser::one_filter(ExprPtr base) {
  Expr out = node(ExprKind::filter, current().line);
  out.name = TRY(dotted_name());
  out.filter = find_filter(out.name);
  if (out.filter == nullptr) {
    const std::string what = concat("the filter '", out.name.substr(0, 100), "'");
    if (is_unsupported_filter(out.name)) return unsupported(what);
    return error(concat(what, " does not exist"));
  }
  out.operands.push_back(std::move(base));
  if (at_op("(")) out.arguments = TRY(arguments());
  return make(std::move(out));
}

Result<ExprPtr> Parser::filter_chain(ExprPtr base, ChainStart start) {
  if (start == ChainStart::name) base = TRY(one_filter(std::move(base)));
  while (skip_op("|")) base = TRY(one_filter(std::move(base)));
  return base;
}

Result<ExprPtr> Parser::one_test(ExprPtr base) {
  Expr out = node(ExprKind::test, current().line);
  const bool negated = skip_name("not");
  out.name = TRY(dotted_name());
  out.test = find_test(out.name);
  if (out.test == nullptr) {
    return error(concat("the test '", out.name.substr(0, 100), "' does not exist"));
  }
  out.operands.push_back(std::move(base));
  const TokenKind kind = current().kind;
  const bool bare =
      (kind == TokenKind::name && !at_name("else") && !at_name("or") && !at_name("and")) ||
      kind == TokenKind::string || kind == TokenKind::integer || kind == TokenKind::floating ||
      at_op("[") || at_op("{");
  if (at_op("(")) {
    out.arguments = TRY(arguments());
  } else if (at_name("is")) {
    return error("tests cannot be chained with 'is'");
  } else if (bare) {
    TRY(enter());
    ExprPtr value = TRY(primary());
    out.arguments.push_back({"", TRY(postfix(std::move(value)))});
    leave();
  }
  const int line = out.line;
  ExprPtr test = TRY(make(std::move(out)));
  if (!negated) return test;
  Expr inverted = node(ExprKind::logical_not, line);
  inverted.operands.push_back(std::move(test));
  return make(std::move(inverted));
}

}  // namespace nibble::jinja
