// The parser's class, shared by parse_expression.cc and parse_statement.cc alone.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"
#include "text/jinja/limits.h"

namespace nibble::jinja {

enum class TupleItems { any, no_conditional };
enum class Parentheses { absent, present };  // around a tuple: () is one only inside them
enum class Filters { allowed, left_to_caller };
enum class ChainStart { name, pipe };        // {% filter a|b %}, {% set x | a|b %}
enum class Attributes { refused, allowed };  // namespace.attribute as an assignment target

class Parser {
 public:
  Parser(std::vector<Token> tokens, std::string_view name, const TemplateLimits& limits)
      : tokens_(std::move(tokens)), name_(name), limits_(limits) {}

  /// Statements up to one of the tags `ends` (left unread) or, with none, the end of the template.
  Result<Block> block(std::initializer_list<std::string_view> ends);

 private:
  using StatementPtr = std::unique_ptr<const Statement>;

  // The token stream.
  const Token& current() const { return tokens_[position_]; }
  void advance() {
    if (position_ + 1 < tokens_.size()) ++position_;
  }
  bool at_op(std::string_view op) const {
    return current().kind == TokenKind::op && current().text == op;
  }
  bool at_name(std::string_view name) const {
    return current().kind == TokenKind::name && current().text == name;
  }
  bool skip_op(std::string_view op);
  bool skip_name(std::string_view name);
  Result<void> expect_op(std::string_view op);
  Result<void> expect(TokenKind kind, std::string_view what);
  Result<std::string> expect_name();
  Error error(std::string_view what) const { return syntax_error(name_, current().line, what); }
  Error unexpected(std::string_view expected) const;
  Error unsupported(std::string_view what) const {
    return unsupported_error(name_, current().line, what);
  }

  // Statements.
  Result<StatementPtr> statement();
  Result<void> end_block();  // the end tag and its %}
  Result<StatementPtr> output();
  Result<void> set_statement(Statement& out);
  Result<void> for_statement(Statement& out);
  Result<void> if_statement(Statement& out);
  Result<void> macro_statement(Statement& out);
  Result<void> with_statement(Statement& out);
  Result<void> filter_statement(Statement& out);
  Result<void> loop_control(Statement& out, StatementKind kind);
  Result<Block> scoped_body(std::initializer_list<std::string_view> ends);
  Result<Target> target(Attributes attributes);
  Result<Target> single_target(Attributes attributes);
  Result<std::string> assignable_name();

  // Expressions, loosest first.
  Result<ExprPtr> tuple(TupleItems items, Parentheses parentheses = Parentheses::absent);
  Result<ExprPtr> expression();
  Result<ExprPtr> or_expression();
  Result<ExprPtr> and_expression();
  Result<ExprPtr> not_expression();
  Result<ExprPtr> comparison();
  Result<ExprPtr> sum();
  Result<ExprPtr> concatenation();
  Result<ExprPtr> product();
  Result<ExprPtr> power();
  Result<ExprPtr> unary(Filters filters = Filters::allowed);
  Result<ExprPtr> primary();
  Result<ExprPtr> postfix(ExprPtr base);
  Result<ExprPtr> filters_and_tests(ExprPtr base);
  Result<ExprPtr> filter_chain(ExprPtr base, ChainStart start);
  Result<ExprPtr> one_filter(ExprPtr base);
  Result<ExprPtr> one_test(ExprPtr base);
  Result<ExprPtr> subscript(ExprPtr base);
  Result<ExprPtr> subscript_item();
  Result<ExprPtr> call(ExprPtr base);
  Result<std::vector<Argument>> arguments();
  Result<ExprPtr> name_or_constant();
  Result<ExprPtr> number();
  Result<ExprPtr> list_literal();
  Result<ExprPtr> dict_literal();
  Result<std::string> dotted_name();
  bool at_tuple_end() const;

  /// Finishes a node: counts its depth, with an error past the limit.
  Result<ExprPtr> make(Expr&& node) const;
  Result<ExprPtr> binary(Operator op, int line, ExprPtr left, ExprPtr right) const;

  Result<void> enter();
  void leave() { --nesting_; }

  std::vector<Token> tokens_;
  std::string name_;
  const TemplateLimits& limits_;
  size_t position_ = 0;
  int nesting_ = 0;
  int loops_ = 0;   // enclosing for loops of the current macro
  int scopes_ = 0;  // enclosing blocks with their own variables
  bool saw_varargs_ = false;
  bool saw_kwargs_ = false;
};

}  // namespace nibble::jinja
