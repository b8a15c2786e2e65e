// One record of a calibration file to token ids: which fields make a conversation, which a text.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "text/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace nibble {

using FieldMap = std::map<std::string, std::string, std::less<>>;

/// The standard names a field map may rename.
bool is_record_field(std::string_view name);

class RecordEncoder {
 public:
  /// Without a template conversations are refused when they come. Errors: those of both loaders.
  static Result<RecordEncoder> load(const std::filesystem::path& model);

  /// Errors: invalid_argument for a record of no known shape; unsupported, with the reason, for a
  /// conversation that cannot be rendered: to be skipped.
  Result<std::vector<int32_t>> encode(const Json& record, const FieldMap& fields) const;
  Result<std::vector<int32_t>> encode_text(std::string_view text) const;

 private:
  explicit RecordEncoder(Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}
  Result<std::vector<int32_t>> encode_chat(const Json& messages, const Json* tools) const;

  Tokenizer tokenizer_;
  std::optional<ChatTemplate> template_;
};

/// Words of a file may hold anything; a message stays short, and in one line.
Error one_line(Error error);

/// The conversation a record holds, as OpenAI messages; null if it is none.
Json record_messages(const Json& record, const FieldMap& fields);

}  // namespace nibble
