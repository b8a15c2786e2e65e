// The form of an answer becomes xgrammar's grammar; its work is counted before it is compiled.
#include "grammar/structure_builder.h"

#include <algorithm>
#include <new>

#include "grammar/grammar_work.h"
#include "grammar/schema_grammar.h"

namespace nibble {

namespace {

constexpr int kWhitespaceMax = 24;  // characters in a row between the parts of a JSON text

Json const_string(std::string_view text) {
  return json_object({{"type", Json("const_string")}, {"value", Json(text)}});
}
Json sequence(Json::Array elements) {
  return json_object({{"type", Json("sequence")}, {"elements", Json(std::move(elements))}});
}
Json any_of(Json::Array elements) {
  return json_object({{"type", Json("or")}, {"elements", Json(std::move(elements))}});
}
Json token(int32_t id) { return json_object({{"type", Json("token")}, {"token", Json(id)}}); }

/// A function and its parameters, any of those there are.
Result<Json> function_format(const GrammarSource& source) {
  return json_object({{"type", Json("grammar")},
                      {"grammar", Json(TRY(call_grammar(source.tools, kWhitespaceMax)))}});
}

/// The tags by id.
Json call_format(const GrammarSource& source, const Json& function) {
  return sequence({token(source.tool_begin), function, token(source.tool_end)});
}

Json free_calls_format(const GrammarSource& source, const Json& function) {
  const Json tag = json_object({{"type", Json("tag")},
                                {"begin", token(source.tool_begin)},
                                {"content", function},
                                {"end", token(source.tool_end)}});
  return json_object({{"type", Json("token_triggered_tags")},
                      {"trigger_tokens", Json(Json::Array{Json(source.tool_begin)})},
                      {"tags", Json(Json::Array{tag})},
                      {"stop_after_first", Json(!source.parallel_calls)}});
}

Json calls_format(const GrammarSource& source, const Json& function) {
  const Json call = call_format(source, function);
  if (!source.parallel_calls) return call;
  const Json more = sequence({const_string("\n"), call});
  return sequence({call, json_object({{"type", Json("star")}, {"content", more}})});
}

Result<Json> format_of(const GrammarSource& source) {
  if (source.kind == GrammarSource::Kind::choice) {
    Json::Array choices;
    for (const std::string& choice : source.choices) choices.push_back(const_string(choice));
    return any_of(std::move(choices));
  }
  const Json function = TRY(function_format(source));
  if (source.kind == GrammarSource::Kind::tool_calls) return calls_format(source, function);
  return free_calls_format(source, function);
}

Result<xgrammar::Grammar> grammar_of(const GrammarSource& source,
                                     const xgrammar::TokenizerInfo& tokenizer) {
  using Kind = GrammarSource::Kind;
  if (source.kind == Kind::json_object || source.kind == Kind::json_schema) {
    const bool any = source.kind == Kind::json_object;
    const Json schema = TRY(parse_json(any ? R"({"type":"object"})" : source.text, "the schema"));
    return xgrammar::Grammar::FromEBNF(TRY(schema_grammar(schema, kWhitespaceMax)));
  }
  if (source.kind == Kind::regex) return xgrammar::Grammar::FromRegex(source.text);
  if (source.kind == Kind::ebnf) return xgrammar::Grammar::FromEBNF(source.text);
  const Json tag =
      json_object({{"type", Json("structural_tag")}, {"format", TRY(format_of(source))}});
  auto made = xgrammar::Grammar::FromStructuralTag(tag.dump(), tokenizer);
  if (const auto* error = std::get_if<xgrammar::StructuralTagError>(&made))
    std::visit([](const auto& e) { throw std::runtime_error(e.what()); }, *error);
  return std::get<xgrammar::Grammar>(made);
}

Error refusal(std::string_view what, std::string_view why) {
  return make_error(ErrorCode::invalid_argument, {.what = what, .found = why});
}

/// Refuses a structure under which no token may begin an answer.
Result<void> check_sayable(const std::shared_ptr<const Grammar>& grammar) {
  std::vector<uint32_t> bits((static_cast<size_t>(grammar->vocab_size) + 31) / 32, ~0U);
  const auto limited = make_grammar_constraint(grammar, -1)->mask({}, bits);
  if (limited == TokenConstraint::MaskState::limited &&
      std::ranges::all_of(bits, [](uint32_t word) { return word == 0; }))
    return refusal("the structure asked for", "no token of this model that may begin it");
  return {};
}

Result<void> check_work(const GrammarWork& work, uint64_t looks_max) {
  if (work.ending == Ending::impossible)
    return refusal("the structure asked for", "no text that fulfils it and comes to an end");
  if (work.looks > looks_max)
    return make_error(ErrorCode::invalid_argument,
                      {.what = "the structure asked for is too costly to compile",
                       .expected = concat("at most ", looks_max, " looks at a token"),
                       .found = concat(work.looks),
                       .advice = "make it simpler: lower counts of repetitions, fewer of them"});
  return {};
}

}  // namespace

StructureBuilder::StructureBuilder(GrammarCompiler::Vocabulary words,
                                   std::chrono::nanoseconds mask_time_max)
    : encode_(std::move(words.encode)), mask_time_max_(mask_time_max) {
  const auto size = static_cast<int>(words.tokens.size());
  // Bytes that no text has, so that no text is taken for a tag; without any xgrammar forbids it. A
  // parameter's text, which may have any characters, never contains its own end, so it takes no
  // tag.
  for (const int32_t tag : words.tags)
    words.tokens[static_cast<size_t>(tag)] = concat(kParameterEnd, "\xFF");
  for (int32_t id = 0; id < size; ++id) {
    const std::string& word = words.tokens[static_cast<size_t>(id)];
    if (!word.empty()) ++tokens_by_first_[static_cast<unsigned char>(word[0])];
    if (word == "\n" || word == "\n\n") line_breaks_.push_back({id, static_cast<int>(word.size())});
  }
  tokenizer_ = std::make_unique<xgrammar::TokenizerInfo>(words.tokens, xgrammar::VocabType::RAW,
                                                         size, words.stop_ids);
}

Result<std::shared_ptr<const Grammar>> StructureBuilder::build(const GrammarSource& source,
                                                               uint64_t looks_max) const {
  try {
    const auto grammar = grammar_of(source, *tokenizer_);
    if (!grammar.ok()) return grammar.error();
    TRY(check_work(work_of(grammar.value(), tokens_by_first_), looks_max));
    xgrammar::GrammarCompiler compiler(*tokenizer_, 1, false);  // one thread, this one
    auto made = with_line_breaks(compiler.CompileGrammar(grammar.value()));
    TRY(check_sayable(made));
    return made;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    std::string why = error.what();
    std::ranges::replace(why, '\n', ' ');
    return refusal("the structure asked for is not valid", why.substr(0, 300));
  }
}

std::shared_ptr<const Grammar> StructureBuilder::with_line_breaks(
    xgrammar::CompiledGrammar compiled) const {
  return std::make_shared<const Grammar>(std::move(compiled), tokenizer_->GetVocabSize(),
                                         line_breaks_, encode_, mask_time_max_);
}

}  // namespace nibble
