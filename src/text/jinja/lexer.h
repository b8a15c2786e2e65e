// The lexer: template source -> tokens, with the white space rules of Jinja under trim_blocks and
// lstrip_blocks already applied to the text between tags. Comments vanish here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nibble::jinja {

enum class TokenKind {
  text,            // outside tags
  variable_begin,  // {{
  variable_end,
  block_begin,  // {%
  block_end,
  name,
  string,  // text holds the value, escapes resolved
  integer,
  floating,
  op,  // text holds the operator
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text;
  int line = 1;
};

/// `name` is the template's, for messages. The last token is `end`.
Result<std::vector<Token>> lex(std::string_view source, std::string_view name);

/// "NAME line N: what".
Error syntax_error(std::string_view name, int line, std::string_view what);
/// The same for well-formed Jinja that this interpreter lacks.
Error unsupported_error(std::string_view name, int line, std::string_view what);

/// A token as people read it: 'endfor', '==', end of template.
std::string describe(const Token& token);

}  // namespace nibble::jinja
