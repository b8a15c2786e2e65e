// Callers compile, each on its thread. Compiled grammars are kept, the least recently used go
// first.
#include "grammar/grammar_compiler.h"

#include <algorithm>
#include <array>
#include <list>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "grammar/allocation_budget.h"
#include "grammar/compiled_grammar.h"
#include "grammar/grammar_work.h"
#include "grammar/schema_check.h"
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

/// A text that differs for different sources.
std::string key_of(const GrammarSource& source) {
  Json::Array tools;
  for (const CallableTool& tool : source.tools)
    tools.push_back(Json(Json::Array{Json(tool.name), tool.parameters}));
  Json::Array choices;
  for (const std::string& choice : source.choices) choices.push_back(Json(choice));
  return Json(Json::Array{Json(static_cast<int>(source.kind)), Json(source.text),
                          Json(std::move(choices)), Json(std::move(tools)),
                          Json(source.parallel_calls)})
      .dump();
}

Error refusal(std::string_view what, std::string_view why) {
  return make_error(ErrorCode::invalid_argument, {.what = what, .found = why});
}

Error too_slow(const GrammarLimits& limits) {
  return make_error(ErrorCode::no_space,
                    {.what = "the structure asked for takes too long to compile",
                     .expected = concat("at most ", limits.time_max.count(), " ms of a processor"),
                     .advice = "make it simpler"});
}

Error too_much_memory(const GrammarLimits& limits) {
  return make_error(ErrorCode::invalid_argument,
                    {.what = "the structure asked for takes too much memory to compile",
                     .expected = concat("at most ", limits.memory_bytes_max, " bytes"),
                     .advice = "make it simpler: fewer repetitions with counts, shorter patterns"});
}

Result<void> check(const GrammarSource& source, const GrammarLimits& limits) {
  size_t bytes = source.text.size();
  for (const std::string& choice : source.choices) bytes += choice.size();
  for (const CallableTool& tool : source.tools) bytes += tool.parameters.dump().size();
  if (source.choices.size() > limits.choices_max)
    return make_error(ErrorCode::invalid_argument,
                      {.what = "the choice asked for is too large",
                       .expected = concat("at most ", limits.choices_max, " texts"),
                       .found = concat(source.choices.size())});
  if (bytes > limits.text_bytes_max)
    return make_error(ErrorCode::invalid_argument,
                      {.what = "the structure asked for is too large",
                       .expected = concat("at most ", limits.text_bytes_max, " bytes"),
                       .found = concat(bytes)});
  if (source.kind == GrammarSource::Kind::choice && source.choices.empty())
    return refusal("a choice", "nothing to choose from");
  if (source.kind == GrammarSource::Kind::json_schema) {
    const Json schema = TRY(parse_json(source.text, "the schema"));
    TRY(check_schema(schema, limits.schema));
  }
  for (const CallableTool& tool : source.tools)
    if (!tool.parameters.is_null())
      if (const auto sound = check_schema(tool.parameters, limits.schema); !sound.ok())
        return refusal(concat("parameters of the function ", tool.name), sound.error().message);
  return {};
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

Result<void> check_work(const GrammarWork& work, const GrammarLimits& limits) {
  if (work.ending == Ending::impossible)
    return refusal("the structure asked for", "no text that fulfils it and comes to an end");
  if (work.looks > limits.looks_max)
    return make_error(ErrorCode::invalid_argument,
                      {.what = "the structure asked for is too costly to compile",
                       .expected = concat("at most ", limits.looks_max, " looks at a token"),
                       .found = concat(work.looks),
                       .advice = "make it simpler: lower counts of repetitions, fewer of them"});
  return {};
}

}  // namespace

struct GrammarCompiler::State {
  using Compiled = Result<std::shared_ptr<const Grammar>>;
  struct Kept {
    std::string key;
    std::shared_ptr<const Grammar> grammar;
    size_t bytes = 0;
  };

  void prepare();
  Compiled make(const GrammarSource& source);
  Compiled compile(const GrammarSource& source, const std::string& key);
  void keep(const std::string& key, const std::shared_ptr<const Grammar>& grammar, size_t bytes);
  std::shared_ptr<const Grammar> find(const std::string& key);

  std::function<Vocabulary()> vocabulary;
  GrammarLimits limits;
  std::once_flag prepared;
  std::unique_ptr<xgrammar::TokenizerInfo> tokenizer;
  std::vector<Grammar::LineBreak> line_breaks;
  std::array<uint32_t, 256> tokens_by_first = {};

  std::mutex mutex;      // guards everything below
  std::list<Kept> kept;  // latest first
  std::unordered_map<std::string, std::list<Kept>::iterator> by_key;
  size_t kept_bytes = 0;
};

void GrammarCompiler::State::prepare() {
  Vocabulary words = vocabulary();
  const auto size = static_cast<int>(words.tokens.size());
  // Bytes that no text has, so that no text is taken for a tag; without any xgrammar forbids it. A
  // parameter's text, which may have any characters, never contains its own end, so it takes no
  // tag.
  for (const int32_t tag : words.tags)
    words.tokens[static_cast<size_t>(tag)] = concat(kParameterEnd, "\xFF");
  for (int32_t id = 0; id < size; ++id) {
    const std::string& word = words.tokens[static_cast<size_t>(id)];
    if (!word.empty()) ++tokens_by_first[static_cast<unsigned char>(word[0])];
    if (word == "\n" || word == "\n\n") line_breaks.push_back({id, static_cast<int>(word.size())});
  }
  tokenizer = std::make_unique<xgrammar::TokenizerInfo>(words.tokens, xgrammar::VocabType::RAW,
                                                        size, words.stop_ids);
}

GrammarCompiler::State::Compiled GrammarCompiler::State::make(const GrammarSource& source) {
  const auto grammar = grammar_of(source, *tokenizer);
  if (!grammar.ok()) return grammar.error();
  TRY(check_work(work_of(grammar.value(), tokens_by_first), limits));
  // One thread, this one, whose memory and time are limited: a pool's would be counted nowhere.
  xgrammar::GrammarCompiler compiler(*tokenizer, 1, false);
  auto made =
      std::make_shared<const Grammar>(Grammar{.compiled = compiler.CompileGrammar(grammar.value()),
                                              .vocab_size = tokenizer->GetVocabSize(),
                                              .line_breaks = line_breaks});
  TRY(check_sayable(made));
  return made;
}

GrammarCompiler::State::Compiled GrammarCompiler::State::compile(const GrammarSource& source,
                                                                 const std::string& key) {
  std::call_once(prepared, [this] { prepare(); });
  const auto deadline = AllocationBudget::Clock::now() + limits.time_max;
  std::optional<AllocationBudget> budget(std::in_place, limits.memory_bytes_max, deadline);
  try {
    Compiled made = make(source);
    const size_t bytes = budget->bytes();  // nothing else is left of it
    budget.reset();
    if (made.ok()) keep(key, made.value(), bytes + key.size());
    return made;
  } catch (const std::exception& error) {
    const AllocationBudget::Spent spent = budget->spent();
    budget.reset();  // what follows is not the compiler's
    if (spent == AllocationBudget::Spent::memory) return too_much_memory(limits);
    if (spent == AllocationBudget::Spent::time) return too_slow(limits);
    std::string why = error.what();
    std::ranges::replace(why, '\n', ' ');
    return refusal("the structure asked for is not valid", why.substr(0, 300));
  }
}

std::shared_ptr<const Grammar> GrammarCompiler::State::find(const std::string& key) {
  const std::lock_guard lock(mutex);
  const auto found = by_key.find(key);
  if (found == by_key.end()) return nullptr;
  kept.splice(kept.begin(), kept, found->second);
  return found->second->grammar;
}

void GrammarCompiler::State::keep(const std::string& key,
                                  const std::shared_ptr<const Grammar>& grammar, size_t bytes) {
  const std::lock_guard lock(mutex);
  if (by_key.contains(key)) return;  // another thread was faster
  kept.push_front({.key = key, .grammar = grammar, .bytes = bytes});
  by_key[key] = kept.begin();
  kept_bytes += bytes;
  while (kept_bytes > limits.cache_bytes_max) {
    kept_bytes -= kept.back().bytes;
    by_key.erase(kept.back().key);
    kept.pop_back();
  }
}

GrammarCompiler::GrammarCompiler(std::function<Vocabulary()> vocabulary,
                                 const GrammarLimits& limits)
    : state_(std::make_unique<State>()) {
  state_->vocabulary = std::move(vocabulary);
  state_->limits = limits;
}

GrammarCompiler::~GrammarCompiler() = default;

Result<std::shared_ptr<const Grammar>> GrammarCompiler::compile(const GrammarSource& source) {
  TRY(check(source, state_->limits));
  const std::string key = key_of(source);
  if (auto known = state_->find(key)) return known;
  return state_->compile(source, key);
}

}  // namespace nibble
