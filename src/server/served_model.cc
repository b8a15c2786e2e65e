// Reads the text side of a checkpoint folder.
#include "server/served_model.h"

#include <algorithm>

#include "base/file.h"

namespace nibble {

namespace {

constexpr uint64_t kConfigBytesMax = uint64_t{1} << 20;

Error bad_value(std::string_view key, std::string_view expected) {
  return make_error(ErrorCode::corrupt, {.what = concat("generation_config.json: ", key),
                                         .expected = expected,
                                         .advice = "correct or remove the key"});
}

/// Reads `key` into `out` if it is there.
Result<void> read_number(const Json& json, std::string_view key, double least, double most,
                         double& out) {
  const Json* value = json.find(key);
  if (value == nullptr || value->is_null()) return {};
  if (!value->is_number() || value->as_double() < least || value->as_double() > most)
    return bad_value(key, concat("a number from ", least, " to ", most));
  out = value->as_double();
  return {};
}

Result<void> read_stop_ids(const Json& json, std::vector<int32_t>& out) {
  const Json* value = json.find("eos_token_id");
  if (value == nullptr || value->is_null()) return {};
  const Json::Array ids = value->is_array() ? value->as_array() : Json::Array{*value};
  for (const Json& id : ids) {
    if (!id.is_int() || id.as_int() < 0 || id.as_int() > INT32_MAX)
      return bad_value("eos_token_id", "a token id or a list of them");
    out.push_back(static_cast<int32_t>(id.as_int()));
  }
  return {};
}

Result<void> read_generation_config(const std::filesystem::path& folder, ServedModel& model) {
  const auto text = read_text_file(folder / "generation_config.json", kConfigBytesMax);
  if (!text.ok() && text.error().code == ErrorCode::not_found) return {};
  if (!text.ok()) return text.error();
  const Json json = TRY(parse_json(text.value(), "generation_config.json"));
  TRY(read_stop_ids(json, model.stop_ids));
  SamplingParams& s = model.sampling;
  TRY(read_number(json, "temperature", 0.0, 100.0, s.temperature));
  TRY(read_number(json, "top_p", 0.0, 1.0, s.top_p));
  TRY(read_number(json, "min_p", 0.0, 1.0, s.min_p));
  TRY(read_number(json, "presence_penalty", -2.0, 2.0, s.presence_penalty));
  TRY(read_number(json, "frequency_penalty", -2.0, 2.0, s.frequency_penalty));
  TRY(read_number(json, "repetition_penalty", 0.01, 10.0, s.repetition_penalty));
  double top_k = 0.0;
  TRY(read_number(json, "top_k", -1.0, 1e9, top_k));
  s.top_k = static_cast<int32_t>(std::max(top_k, 0.0));
  double max_tokens = 0.0;
  TRY(read_number(json, "max_new_tokens", 1.0, 1e9, max_tokens));
  if (max_tokens > 0.0) model.max_tokens_default = static_cast<int32_t>(max_tokens);
  return {};
}

}  // namespace

std::vector<uint32_t> ServedModel::sampleable() const {
  std::vector<uint32_t> bits((static_cast<size_t>(vocab_rows) + 31) / 32, 0);
  for (int32_t id = 0; id < vocab_rows; ++id)
    if (tokenizer.exists(id))
      bits[static_cast<size_t>(id) / 32] |= 1U << (static_cast<uint32_t>(id) % 32);
  return bits;
}

GrammarCompiler::Vocabulary ServedModel::grammar_vocabulary() const {
  GrammarCompiler::Vocabulary vocabulary{.tokens = {}, .stop_ids = stop_ids, .tags = {}};
  vocabulary.tokens.resize(static_cast<size_t>(vocab_rows));
  for (int32_t id = 0; id < vocab_rows; ++id)
    if (tokenizer.exists(id) && !tokenizer.is_added(id))
      vocabulary.tokens[static_cast<size_t>(id)] = tokenizer.id_to_token_bytes(id).value_or("");
  for (const auto tag : {tags.tool_begin, tags.tool_end})
    if (tag) vocabulary.tags.push_back(*tag);
  vocabulary.encode = [words = tokenizer](std::string_view text) {
    auto ids = words.encode(text, SpecialTokens::plain_text);
    return ids.ok() ? std::move(ids).value() : std::vector<int32_t>();
  };
  return vocabulary;
}

Result<ServedModel> load_served_model(const std::filesystem::path& folder,
                                      const ModelConfig& config, const TemplateLimits& limits) {
  ServedModel model{.tokenizer = TRY(Tokenizer::load(folder))};
  auto chat_template =
      load_chat_template(folder, TRY(read_special_tokens(folder)), "default", limits);
  if (chat_template.ok())
    model.chat_template = std::move(chat_template).value();
  else if (chat_template.error().code != ErrorCode::not_found)
    return chat_template.error();

  model.vocab_rows = config.vocab_rows;
  for (int32_t id = 0; id < model.tokenizer.vocab_size(); ++id)
    if (const auto bytes = model.tokenizer.id_to_token_bytes(id))
      model.token_bytes_max = std::max(model.token_bytes_max, bytes->size());
  model.stop_ids = config.stop_ids;
  TRY(read_generation_config(folder, model));
  if (const auto eos = model.tokenizer.eos_token_id()) model.stop_ids.push_back(*eos);
  std::ranges::sort(model.stop_ids);
  const auto repeated = std::ranges::unique(model.stop_ids);
  model.stop_ids.erase(repeated.begin(), repeated.end());

  const auto tag = [&](std::string_view text) -> std::optional<int32_t> {
    const auto id = model.tokenizer.token_to_id(text);
    return id && model.tokenizer.is_added(*id) ? id : std::nullopt;
  };
  model.tags = {.think_begin = tag("<think>"),
                .think_end = tag("</think>"),
                .tool_begin = tag("<tool_call>"),
                .tool_end = tag("</tool_call>")};
  if (model.tags.think_end) {
    model.thinking_close = TRY(model.tokenizer.encode("\n", SpecialTokens::plain_text));
    model.thinking_close.push_back(*model.tags.think_end);
  }
  return model;
}

}  // namespace nibble
