// AnswerPolicy: what the operator decided about requests and answers of every client; flags of
// `nibble serve`.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace nibble {

/// A field that no API of this server knows.
enum class UnknownFields : uint8_t { ignored, refused };
/// The name, or names, that a chat answer's thinking has.
enum class ReasoningField : uint8_t { both, reasoning, reasoning_content };
/// Reads "both", "reasoning" or "reasoning_content"; empty for another word.
std::optional<ReasoningField> reasoning_field_of(std::string_view name);

struct AnswerPolicy {
  /// Tokens kept for the answer when thinking is on, at most a share of max_tokens; 0: none.
  int32_t answer_reserve = 1024;
  UnknownFields unknown_fields = UnknownFields::ignored;
  ReasoningField reasoning_field = ReasoningField::both;
};

}  // namespace nibble
