// A test tool: one JSON request per line on standard input, one JSON answer per line on standard
// output, so that a Python oracle can judge many schemas in one process. Not part of the program.
//
//   {"schema": {...}, "said": [TEXT ...], "outputs": COUNT, "seed": NUMBER}
//       -> {"error": MESSAGE} or {"taken": [BOOL ...], "outputs": [TEXT ...], "cut": COUNT}
//
// `taken` says which texts the grammar lets through whole; `outputs` are drawn from the masks, and
// `cut` are those that found no end.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <random>

#include "grammar/test_vocabulary.h"

namespace nibble {
namespace {

constexpr int kDrawnMax = 60;  // tokens until an end is looked for
constexpr int kTokensMax = 1500;

using Constraint = std::unique_ptr<TokenConstraint>;

std::vector<int32_t> allowed(TokenConstraint& constraint) {
  std::vector<uint32_t> bits((kVocab + 31) / 32, ~0U);
  constraint.mask({}, bits);
  std::vector<int32_t> made;
  for (int32_t token = 0; token < kVocab; ++token)
    if ((bits[static_cast<size_t>(token) / 32] >> (token % 32) & 1U) != 0) made.push_back(token);
  return made;
}

bool takes(const std::shared_ptr<const Grammar>& grammar, const std::string& text) {
  const Constraint constraint = make_grammar_constraint(grammar, -1);
  for (const char c : text) {
    const int32_t token = static_cast<unsigned char>(c);
    if (!std::ranges::binary_search(allowed(*constraint), token)) return false;
    if (constraint->accept({&token, 1})) return false;
  }
  return std::ranges::binary_search(allowed(*constraint), kEnd);
}

/// The tokens that end texts, the likeliest first.
int32_t closing(const std::vector<int32_t>& may, std::mt19937& random) {
  for (const char c : std::string("\"}],:0an9ZP@./-"))
    if (std::ranges::binary_search(may, static_cast<int32_t>(c)) && random() % 8 != 0) return c;
  return may[random() % may.size()];
}

std::optional<std::string> draw(const std::shared_ptr<const Grammar>& grammar,
                                std::mt19937& random) {
  const Constraint constraint = make_grammar_constraint(grammar, -1);
  std::string text;
  const auto tokens_drawn = static_cast<int>(random() % kDrawnMax);
  for (int step = 0; step < kTokensMax; ++step) {
    const std::vector<int32_t> may = allowed(*constraint);
    if (may.empty()) return std::nullopt;
    const bool ends = std::ranges::binary_search(may, kEnd);
    if (ends && (step >= tokens_drawn || random() % 4 == 0 || may.size() == 1)) return text;
    int32_t token = step < tokens_drawn && random() % 3 != 0 ? may[random() % may.size()]
                                                             : closing(may, random);
    if (token == kEnd) return text;
    if (constraint->accept({&token, 1})) return std::nullopt;
    text += tokens()[static_cast<size_t>(token)];
  }
  return std::nullopt;
}

Json answer(GrammarCompiler& compiler, const Json& request) {
  const auto grammar = compiler.compile(schema(request.find("schema")->dump()));
  if (!grammar.ok()) return json_object({{"error", Json(grammar.error().message)}});
  Json::Array taken;
  Json::Array outputs;
  int cut = 0;
  for (const Json& text : request.find("said")->as_array())
    taken.push_back(Json(takes(grammar.value(), text.as_string())));
  std::mt19937 random(static_cast<uint32_t>(request.find("seed")->as_int()));
  for (int64_t i = 0; i < request.find("outputs")->as_int(); ++i) {
    if (auto text = draw(grammar.value(), random))
      outputs.push_back(Json(*text));
    else
      ++cut;
  }
  return json_object({{"taken", Json(taken)}, {"outputs", Json(outputs)}, {"cut", Json(cut)}});
}

}  // namespace
}  // namespace nibble

int main() {
  nibble::GrammarCompiler compiler(nibble::vocabulary);
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto request = nibble::parse_json(line, "the request");
    if (!request.ok()) {
      std::cerr << request.error().message << "\n";
      return 1;
    }
    const std::string line_out = nibble::answer(compiler, request.value()).dump() + "\n";
    std::fputs(line_out.c_str(), stdout);
    std::fflush(stdout);
  }
}
