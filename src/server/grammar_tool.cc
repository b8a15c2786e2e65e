// A test tool: one JSON request per line on standard input, one JSON answer per line on standard
// output, so that a Python oracle can judge many schemas in one process. Not part of the program.
//
//   {"schema": {...}, "form": "answer" or "call", "said": [TEXT ...], "outputs": COUNT,
//    "seed": NUMBER}
//       -> {"error": MESSAGE} or {"taken": [TEXT or null ...], "outputs": [TEXT ...], "cut": COUNT}
//
// An answer must follow the schema; a call of a function has it as the schema of its parameters,
// and its texts are the arguments, which the server's parser reads from what is said. `taken` says
// for each text whether the grammar lets it through whole, and as what it is read; `outputs` are
// drawn from the masks, and `cut` are those that found no end.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <random>

#include "grammar/test_vocabulary.h"
#include "server/decode/output_parser.h"

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

using Tokens = std::vector<int32_t>;
enum class Form : uint8_t { answer, call };

constexpr std::string_view kParameterEnd = "\n</parameter>\n";

struct Structure {
  Form form = Form::answer;
  Json schema;
  std::shared_ptr<const Grammar> grammar;
};

bool takes(const Structure& structure, const Tokens& said) {
  const Constraint constraint = make_grammar_constraint(structure.grammar, -1);
  for (const int32_t token : said) {
    if (!std::ranges::binary_search(allowed(*constraint), token)) return false;
    if (constraint->accept({&token, 1})) return false;
  }
  return std::ranges::binary_search(allowed(*constraint), kEnd);
}

std::string text_of(const Tokens& said) {
  std::string text;
  for (const int32_t token : said) text += tokens()[static_cast<size_t>(token)];
  return text;
}

/// The JSON that a client gets for what is said.
std::string read(const Structure& structure, const Tokens& said) {
  if (structure.form == Form::answer) return text_of(said);
  const Json function = json_object({{"name", Json("f")}, {"parameters", structure.schema}});
  OutputParser parser(StartIn::content, ParseTools::sound,
                      ToolSchemas(Json(Json::Array{json_object({{"function", function}})})));
  for (const int32_t token : said) {
    if (token == kToolBegin)
      parser.marker(Marker::tool_begin);
    else if (token == kToolEnd)
      parser.marker(Marker::tool_end);
    else
      parser.text(tokens()[static_cast<size_t>(token)]);
  }
  parser.finish();
  std::string arguments;
  for (const OutputEvent& event : parser.take())
    if (event.kind == OutputEvent::Kind::tool_arguments) arguments += event.text;
  return arguments;
}

/// The tokens of an answer, or of a call with such arguments, as the templates write it.
Tokens written(Form form, const std::string& json) {
  std::string text = json;
  if (form == Form::call) {
    text = "\n<function=f>\n";
    const Json arguments = parse_json(json, "arguments").value();
    for (const auto& [name, value] : arguments.as_object())
      text += concat("<parameter=", name, ">\n",
                     value.is_string() ? value.as_string() : value.dump(), kParameterEnd);
    text += "</function>\n";
  }
  Tokens made;
  if (form == Form::call) made.push_back(kToolBegin);
  for (const char c : text) made.push_back(static_cast<unsigned char>(c));
  if (form == Form::call) made.push_back(kToolEnd);
  return made;
}

/// The character that goes on with the end of a parameter, as far as the text has begun it.
char next_of_end(const std::string& text) {
  for (size_t size = kParameterEnd.size() - 1; size > 0; --size)
    if (text.ends_with(kParameterEnd.substr(0, size))) return kParameterEnd[size];
  return kParameterEnd[0];
}

/// The tokens that end texts, the likeliest first.
int32_t closing(Form form, const std::string& text, const std::vector<int32_t>& may,
                std::mt19937& random) {
  std::string ends = "\"}],:0an9ZP@./-";
  if (form == Form::call) ends.insert(ends.begin(), next_of_end(text));
  for (const char c : ends)
    if (std::ranges::binary_search(may, static_cast<int32_t>(c)) && random() % 8 != 0) return c;
  return may[random() % may.size()];
}

std::optional<Tokens> draw(const Structure& structure, std::mt19937& random) {
  const Constraint constraint = make_grammar_constraint(structure.grammar, -1);
  Tokens said;
  std::string text;
  const auto tokens_drawn = static_cast<int>(random() % kDrawnMax);
  for (int step = 0; step < kTokensMax; ++step) {
    const std::vector<int32_t> may = allowed(*constraint);
    if (may.empty()) return std::nullopt;
    const bool ends = std::ranges::binary_search(may, kEnd);
    if (ends && (step >= tokens_drawn || random() % 4 == 0 || may.size() == 1)) return said;
    int32_t token = step < tokens_drawn && random() % 3 != 0
                        ? may[random() % may.size()]
                        : closing(structure.form, text, may, random);
    if (token == kEnd) return said;
    if (constraint->accept({&token, 1})) return std::nullopt;
    said.push_back(token);
    text += tokens()[static_cast<size_t>(token)];
  }
  return std::nullopt;
}

GrammarSource source_of(Form form, const Json& asked) {
  if (form == Form::answer) return schema(asked.dump());
  return {.kind = GrammarSource::Kind::tool_calls,
          .tools = {{.name = "f", .parameters = asked}},
          .parallel_calls = false,
          .tool_begin = kToolBegin,
          .tool_end = kToolEnd};
}

Json answer(GrammarCompiler& compiler, const Json& request) {
  const Form form = *request.find("form") == Json("call") ? Form::call : Form::answer;
  const Json& asked = *request.find("schema");
  const auto grammar = compiler.compile(source_of(form, asked));
  if (!grammar.ok()) return json_object({{"error", Json(grammar.error().message)}});
  const Structure structure{.form = form, .schema = asked, .grammar = grammar.value()};
  Json::Array taken;
  Json::Array outputs;
  int cut = 0;
  for (const Json& text : request.find("said")->as_array()) {
    const Tokens said = written(form, text.as_string());
    taken.push_back(takes(structure, said) ? Json(read(structure, said)) : Json());
  }
  std::mt19937 random(static_cast<uint32_t>(request.find("seed")->as_int()));
  for (int64_t i = 0; i < request.find("outputs")->as_int(); ++i) {
    if (const auto said = draw(structure, random))
      outputs.push_back(Json(read(structure, *said)));
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
