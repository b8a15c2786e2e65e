// ServedModel: everything about a checkpoint that turns text into requests and tokens into answers:
// names, tokenizer, template, sampling defaults, stop ids, the ids of thinking and tool tags.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/sample/sampling_params.h"
#include "grammar/grammar_compiler.h"
#include "model/config/config.h"
#include "server/images/image_intake.h"
#include "server/request/answer_policy.h"
#include "server/request/profiles.h"
#include "text/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace nibble {

/// Tokens that structure an answer. Recognised by id only: text that spells them is text.
struct TagIds {
  std::optional<int32_t> think_begin, think_end, tool_begin, tool_end;
};

struct ServedModel {
  std::vector<std::string> names;  // the first is echoed in answers
  Tokenizer tokenizer;
  /// More names of the same model, which no answer shows: the path it was given as.
  std::vector<std::string> unlisted_names{};
  Profiles profiles{};                        // further names, each with settings of its own
  std::optional<ChatTemplate> chat_template;  // absent: completions only
  Json template_kwargs;                       // defaults below the request's
  SpecialTokens completion_prompts = SpecialTokens::plain_text;  // text of /v1/completions
  AnswerPolicy policy;
  SamplingParams sampling;                    // defaults from generation_config.json
  std::optional<int32_t> max_tokens_default;  // max_new_tokens of generation_config.json
  std::vector<int32_t> stop_ids;              // union of all configs, ascending
  TagIds tags;
  std::vector<int32_t> thinking_close;  // what ends thinking by force: a line break and </think>
  int32_t context_max = 0;
  int32_t vocab_rows = 0;
  size_t token_bytes_max = 1;  // bytes of the longest token
  int64_t created = 0;         // seconds since 1970
  std::string fingerprint;     // system_fingerprint of answers; the server's
  /// Reads the images of requests; empty: the model is given text alone.
  std::shared_ptr<const ImageIntake> images;
  /// Compiles what answers must be; the server's. Empty: requests for structure are refused.
  std::shared_ptr<GrammarCompiler> grammars;

  /// Text of more bytes than this cannot fit the context, whatever its tokens: refused before the
  /// work of tokenising it. Normalisation may shrink text; four is more than it can.
  size_t prompt_bytes_max() const { return 4 * token_bytes_max * static_cast<size_t>(context_max); }
  /// The vocabulary that a grammar may use: the text of every token that is no tag.
  GrammarCompiler::Vocabulary grammar_vocabulary() const;
  /// One bit per vocabulary row: ids the tokenizer knows.
  std::vector<uint32_t> sampleable() const;
};

/// Reads tokenizer, template (its absence is not an error), generation_config.json and the stop ids
/// of a checkpoint folder. Names, context_max, created and template_kwargs are the caller's.
Result<ServedModel> load_served_model(const std::filesystem::path& folder,
                                      const ModelConfig& config, const TemplateLimits& limits = {});

}  // namespace nibble
