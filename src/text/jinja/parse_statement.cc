// Statements: tags, their bodies and their end tags.
#include <algorithm>

#include "text/jinja/parser.h"
#include "text/jinja/parser_impl.h"

namespace nibble::jinja {

bool Parser::skip_op(std::string_view op) {
  if (!at_op(op)) return false;
  advance();
  return true;
}
bool Parser::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  advance();
  return true;
}
Error Parser::unexpected(std::string_view expected) const {
  return error(concat("expected ", expected, ", found ", describe(current())));
}
Result<void> Parser::expect_op(std::string_view op) {
  if (!skip_op(op)) return unexpected(concat("'", op, "'"));
  return {};
}
Result<void> Parser::expect(TokenKind kind, std::string_view what) {
  if (current().kind != kind) return unexpected(what);
  advance();
  return {};
}
Result<std::string> Parser::expect_name() {
  if (current().kind != TokenKind::name) return unexpected("a name");
  std::string name = current().text;
  advance();
  return name;
}

Result<Block> Parser::block(std::initializer_list<std::string_view> ends) {
  TRY(enter());
  Block out;
  for (;;) {
    const TokenKind kind = current().kind;
    if (kind == TokenKind::end) {
      if (ends.size() == 0) break;
      return unexpected(concat("the tag '", *(ends.end() - 1), "'"));
    }
    if (kind == TokenKind::text) {
      auto text = std::make_unique<Statement>();
      text->line = current().line;
      text->text = Value(Text(current().text));
      out.push_back(std::move(text));
      advance();
    } else if (kind == TokenKind::variable_begin) {
      out.push_back(TRY(output()));
    } else {
      advance();  // {%
      if (std::ranges::any_of(ends, [&](std::string_view end) { return at_name(end); })) break;
      out.push_back(TRY(statement()));
    }
  }
  leave();
  return out;
}

Result<Parser::StatementPtr> Parser::output() {
  auto out = std::make_unique<Statement>();
  out->kind = StatementKind::output;
  out->line = current().line;
  advance();
  out->expr = TRY(tuple(TupleItems::any));
  TRY(expect(TokenKind::variable_end, "'}}'"));
  return StatementPtr(std::move(out));
}

Result<void> Parser::end_block() {
  advance();
  return expect(TokenKind::block_end, "'%}'");
}

Result<Parser::StatementPtr> Parser::statement() {
  auto out = std::make_unique<Statement>();
  out->line = current().line;
  if (current().kind != TokenKind::name) return unexpected("a tag name");
  const std::string tag = current().text;
  static constexpr std::string_view kUnsupported[] = {"extends", "include",    "import", "from",
                                                      "block",   "call",       "trans",  "do",
                                                      "debug",   "autoescape", "print"};
  if (std::ranges::find(kUnsupported, tag) != std::end(kUnsupported)) {
    return unsupported(concat("the tag '", tag, "'"));
  }
  advance();
  if (tag == "set") {
    TRY(set_statement(*out));
  } else if (tag == "for") {
    TRY(for_statement(*out));
  } else if (tag == "if") {
    TRY(if_statement(*out));
  } else if (tag == "macro") {
    TRY(macro_statement(*out));
  } else if (tag == "with") {
    TRY(with_statement(*out));
  } else if (tag == "filter") {
    TRY(filter_statement(*out));
  } else if (tag == "generation") {
    out->kind = StatementKind::scope;
    TRY(expect(TokenKind::block_end, "'%}'"));
    const int loops = std::exchange(loops_, 0);
    out->body = TRY(scoped_body({"endgeneration"}));
    loops_ = loops;
  } else if (tag == "break") {
    TRY(loop_control(*out, StatementKind::break_loop));
  } else if (tag == "continue") {
    TRY(loop_control(*out, StatementKind::continue_loop));
  } else {
    --position_;
    return error(concat("unknown tag '", tag.substr(0, 100), "'"));
  }
  return StatementPtr(std::move(out));
}

/// The body of a block with its own variables, and its end tag.
Result<Block> Parser::scoped_body(std::initializer_list<std::string_view> ends) {
  ++scopes_;
  Block body = TRY(block(ends));
  --scopes_;
  TRY(end_block());
  return body;
}

Result<void> Parser::loop_control(Statement& out, StatementKind kind) {
  if (loops_ == 0) return error("'break' or 'continue' outside a loop");
  out.kind = kind;
  return expect(TokenKind::block_end, "'%}'");
}

Result<std::string> Parser::assignable_name() {
  static constexpr std::string_view kConstants[] = {"true", "false", "none",
                                                    "True", "False", "None"};
  if (std::ranges::find(kConstants, current().text) != std::end(kConstants)) {
    return error(concat("cannot assign to '", current().text, "'"));
  }
  return expect_name();
}

Result<Target> Parser::single_target(Attributes attributes) {
  Target out;
  if (skip_op("(")) {
    TRY(enter());
    out = TRY(target(attributes));
    leave();
    TRY(expect_op(")"));
    return out;
  }
  out.name = TRY(assignable_name());
  if (attributes == Attributes::allowed && skip_op(".")) out.attribute = TRY(expect_name());
  return out;
}

Result<Target> Parser::target(Attributes attributes) {
  Target first = TRY(single_target(attributes));
  if (!at_op(",")) return first;
  Target out;
  out.items.push_back(std::move(first));
  while (skip_op(",")) {
    if (current().kind != TokenKind::name && !at_op("(")) break;
    if (at_name("in")) break;
    out.items.push_back(TRY(single_target(attributes)));
  }
  return out;
}

Result<void> Parser::set_statement(Statement& out) {
  out.target = TRY(target(Attributes::allowed));
  if (skip_op("=")) {
    out.kind = StatementKind::assign;
    out.expr = TRY(tuple(TupleItems::any));
    return expect(TokenKind::block_end, "'%}'");
  }
  out.kind = StatementKind::assign_block;
  out.expr = TRY(filter_chain(nullptr, ChainStart::pipe));
  TRY(expect(TokenKind::block_end, "'%}'"));
  out.body = TRY(scoped_body({"endset"}));
  return {};
}

Result<void> Parser::filter_statement(Statement& out) {
  out.kind = StatementKind::filter_block;
  out.expr = TRY(filter_chain(nullptr, ChainStart::name));
  TRY(expect(TokenKind::block_end, "'%}'"));
  out.body = TRY(scoped_body({"endfilter"}));
  return {};
}

Result<void> Parser::with_statement(Statement& out) {
  out.kind = StatementKind::with;
  while (current().kind != TokenKind::block_end) {
    if (!out.assignments.empty()) TRY(expect_op(","));
    Target name = TRY(single_target(Attributes::refused));
    TRY(expect_op("="));
    out.assignments.emplace_back(std::move(name), TRY(expression()));
  }
  TRY(expect(TokenKind::block_end, "'%}'"));
  out.body = TRY(scoped_body({"endwith"}));
  return {};
}

Result<void> Parser::for_statement(Statement& out) {
  out.kind = StatementKind::for_loop;
  out.target = TRY(target(Attributes::refused));
  if (out.target.name == "loop") return error("the loop variable cannot be named 'loop'");
  if (!skip_name("in")) return unexpected("'in'");
  out.expr = TRY(tuple(TupleItems::no_conditional));
  if (skip_name("if")) out.condition = TRY(expression());
  if (at_name("recursive")) return unsupported("a recursive loop");
  TRY(expect(TokenKind::block_end, "'%}'"));
  ++loops_;
  ++scopes_;
  out.body = TRY(block({"else", "endfor"}));
  --loops_;
  const bool has_else = at_name("else");
  TRY(end_block());
  if (has_else) {
    out.else_body = TRY(block({"endfor"}));
    TRY(end_block());
  }
  --scopes_;
  return {};
}

Result<void> Parser::if_statement(Statement& out) {
  out.kind = StatementKind::if_chain;
  for (;;) {
    Branch branch;
    branch.condition = TRY(tuple(TupleItems::no_conditional));
    TRY(expect(TokenKind::block_end, "'%}'"));
    branch.body = TRY(block({"elif", "else", "endif"}));
    out.branches.push_back(std::move(branch));
    if (skip_name("elif")) continue;
    const bool has_else = at_name("else");
    TRY(end_block());
    if (!has_else) return {};
    branch = Branch{};
    branch.body = TRY(block({"endif"}));
    out.branches.push_back(std::move(branch));
    return end_block();
  }
}

Result<void> Parser::macro_statement(Statement& out) {
  if (scopes_ > 0) return unsupported("a macro inside a loop, a macro or another scoped block");
  out.kind = StatementKind::macro;
  out.name = TRY(assignable_name());
  TRY(expect_op("("));
  while (!at_op(")")) {
    if (!out.parameters.empty()) TRY(expect_op(","));
    Parameter parameter;
    parameter.name = TRY(assignable_name());
    if (parameter.name == "caller") return unsupported("the macro parameter 'caller'");
    if (skip_op("=")) {
      parameter.fallback = TRY(expression());
    } else if (!out.parameters.empty() && out.parameters.back().fallback) {
      return error("a parameter without default follows one with a default");
    }
    out.parameters.push_back(std::move(parameter));
  }
  TRY(expect_op(")"));
  TRY(expect(TokenKind::block_end, "'%}'"));
  saw_varargs_ = saw_kwargs_ = false;
  const int loops = std::exchange(loops_, 0);
  out.body = TRY(scoped_body({"endmacro"}));
  loops_ = loops;
  out.uses_varargs = saw_varargs_;
  out.uses_kwargs = saw_kwargs_;
  return {};
}

Result<Block> parse(std::string_view source, std::string_view name, const TemplateLimits& limits) {
  if (source.size() > limits.source_bytes_max) {
    return make_error(ErrorCode::unsupported,
                      {.what = concat(name, " is too large for a chat template"),
                       .expected = concat("at most ", limits.source_bytes_max, " bytes"),
                       .found = concat(source.size())});
  }
  Parser parser(TRY(lex(source, name)), name, limits);
  return parser.block({});
}

}  // namespace nibble::jinja
