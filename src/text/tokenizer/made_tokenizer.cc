// JSON by hand-made objects; the layout of Qwen's own files.
#include "text/tokenizer/made_tokenizer.h"

#include <array>

#include "base/utf8.h"

namespace nibble {
namespace {

constexpr int64_t kBytes = 256;
// Qwen's order. Images and videos are marked by ids 12 and 13 of it, a picture begins with id 9.
constexpr std::array<std::string_view, 33> kAdded = {"<|endoftext|>",
                                                     "<|im_start|>",
                                                     "<|im_end|>",
                                                     "<|object_ref_start|>",
                                                     "<|object_ref_end|>",
                                                     "<|box_start|>",
                                                     "<|box_end|>",
                                                     "<|quad_start|>",
                                                     "<|quad_end|>",
                                                     "<|vision_start|>",
                                                     "<|vision_end|>",
                                                     "<|vision_pad|>",
                                                     "<|image_pad|>",
                                                     "<|video_pad|>",
                                                     "<tool_call>",
                                                     "</tool_call>",
                                                     "<|fim_prefix|>",
                                                     "<|fim_middle|>",
                                                     "<|fim_suffix|>",
                                                     "<|fim_pad|>",
                                                     "<|repo_name|>",
                                                     "<|file_sep|>",
                                                     "<tool_response>",
                                                     "</tool_response>",
                                                     "<think>",
                                                     "</think>",
                                                     "<|audio_start|>",
                                                     "<|audio_end|>",
                                                     "<tts_pad>",
                                                     "<tts_text_bos>",
                                                     "<tts_text_eod>",
                                                     "<tts_text_bos_single>",
                                                     "<|audio_pad|>"};
constexpr int64_t kImEnd = 2, kVisionStart = 9, kFirstPlain = 14, kLastPlain = 25;
constexpr std::string_view kSplit =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+)"
    R"([\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTemplate =
    "{%- for message in messages %}\n"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n"
    "{{- '<|im_start|>assistant\\n' }}\n"
    "{%- endif %}\n";

Json object(std::initializer_list<std::pair<std::string_view, Json>> members) {
  Json out{Json::Object()};
  for (const auto& [key, value] : members) out.set(key, value);
  return out;
}

/// The letters by which byte-level vocabularies write bytes: printable ones as themselves, the
/// others as the letters from U+0100 on.
std::vector<std::string> byte_letters() {
  std::vector<std::string> out(kBytes);
  uint32_t next = 0x100;
  for (int byte = 0; byte < kBytes; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    append_utf8(out[static_cast<size_t>(byte)], printable ? static_cast<uint32_t>(byte) : next++);
  }
  return out;
}

Result<int64_t> integer(const Json& config, std::string_view key, int64_t otherwise) {
  const Json* value = config.find(key);
  if (value == nullptr || value->is_null()) return otherwise;
  if (value->is_int()) return value->as_int();
  return make_error(ErrorCode::corrupt, {.what = concat("config.json: ", key),
                                         .expected = "an integer",
                                         .found = value->dump().substr(0, 40)});
}

struct Ids {
  int64_t vocabulary = 0;
  int64_t first_added = 0;
};

Result<Ids> ids_of(const Json& config) {
  const Json* inner = config.find("text_config");
  const Json& text = inner == nullptr ? config : *inner;
  Ids ids{.vocabulary = TRY(integer(text, "vocab_size", 0))};
  const auto count = static_cast<int64_t>(kAdded.size());
  const int64_t vision = TRY(integer(config, "vision_start_token_id", -1));
  const int64_t begin = TRY(integer(text, "bos_token_id", -1));
  ids.first_added = vision >= 0  ? vision - kVisionStart
                    : begin >= 0 ? begin
                                 : ids.vocabulary - count;
  const bool fits = ids.first_added >= kBytes && ids.first_added + count <= ids.vocabulary;
  if (!fits || ids.vocabulary > (int64_t{1} << 24))
    return make_error(
        ErrorCode::corrupt,
        {.what = "config.json: vocab_size and special ids",
         .expected = concat("room for ", kBytes, " bytes and ", count, " added tokens after them"),
         .found = concat("vocab_size ", ids.vocabulary, ", added tokens from ", ids.first_added)});
  return ids;
}

Json added_token(size_t index, int64_t id) {
  const auto at = static_cast<int64_t>(index);
  const bool special = at < kFirstPlain || at > kLastPlain;
  return object({{"id", id},
                 {"content", std::string(kAdded[index])},
                 {"single_word", false},
                 {"lstrip", false},
                 {"rstrip", false},
                 {"normalized", false},
                 {"special", special}});
}

Json byte_level(bool decoder) {
  return object({{"type", "ByteLevel"},
                 {"add_prefix_space", decoder},
                 {"trim_offsets", decoder},
                 {"use_regex", decoder}});
}

std::string tokenizer_json(const Ids& ids) {
  Json vocabulary{Json::Object()};
  for (const std::string& letter : byte_letters())
    vocabulary.as_object().push_back(
        {letter, Json(static_cast<int64_t>(vocabulary.as_object().size()))});
  for (int64_t id = kBytes; id < ids.first_added; ++id)
    vocabulary.as_object().push_back({concat("w", id), Json(id)});
  Json added{Json::Array()};
  for (size_t i = 0; i < kAdded.size(); ++i)
    added.push_back(added_token(i, ids.first_added + static_cast<int64_t>(i)));
  const Json split = object({{"type", "Split"},
                             {"pattern", object({{"Regex", std::string(kSplit)}})},
                             {"behavior", "Isolated"},
                             {"invert", false}});
  return object(
             {{"version", "1.0"},
              {"truncation", nullptr},
              {"padding", nullptr},
              {"added_tokens", added},
              {"normalizer", object({{"type", "NFC"}})},
              {"pre_tokenizer", object({{"type", "Sequence"},
                                        {"pretokenizers", Json::Array{split, byte_level(false)}}})},
              {"post_processor", byte_level(false)},
              {"decoder", byte_level(true)},
              {"model", object({{"type", "BPE"},
                                {"dropout", nullptr},
                                {"unk_token", nullptr},
                                {"continuing_subword_prefix", nullptr},
                                {"end_of_word_suffix", nullptr},
                                {"fuse_unk", false},
                                {"byte_fallback", false},
                                {"ignore_merges", false},
                                {"vocab", std::move(vocabulary)},
                                {"merges", Json::Array{}}})}})
      .dump();
}

std::string tokenizer_config(const Ids& ids, const Json& config) {
  const Json* inner = config.find("text_config");
  const Json* longest = (inner == nullptr ? config : *inner).find("max_position_embeddings");
  Json tokens{Json::Object()};
  for (size_t i = 0; i < kAdded.size(); ++i) {
    const int64_t id = ids.first_added + static_cast<int64_t>(i);
    Json::Object members = added_token(i, id).as_object();
    members.erase(members.begin());  // the id is the key here
    tokens.set(concat(id), members);
  }
  return object({{"add_bos_token", false},
                 {"add_prefix_space", false},
                 {"added_tokens_decoder", tokens},
                 {"bos_token", nullptr},
                 {"clean_up_tokenization_spaces", false},
                 {"eos_token", "<|im_end|>"},
                 {"errors", "replace"},
                 {"model_max_length", longest == nullptr ? Json(32768) : *longest},
                 {"pad_token", "<|endoftext|>"},
                 {"split_special_tokens", false},
                 {"tokenizer_class", "Qwen2Tokenizer"},
                 {"unk_token", nullptr},
                 {"image_token", "<|image_pad|>"},
                 {"video_token", "<|video_pad|>"},
                 {"vision_bos_token", "<|vision_start|>"},
                 {"vision_eos_token", "<|vision_end|>"}})
      .dump_pretty();
}

std::string generation_config(const Ids& ids) {
  return object(
             {{"bos_token_id", ids.first_added},
              {"eos_token_id", Json::Array{Json(ids.first_added + kImEnd), Json(ids.first_added)}},
              {"pad_token_id", ids.first_added}})
      .dump_pretty();
}

/// preprocessor_config.json or video_preprocessor_config.json.
std::string processor(const Json& vision, std::string_view kind, std::string_view type) {
  const auto of = [&](std::string_view key, int otherwise) {
    const Json* value = vision.find(key);
    return value == nullptr ? Json(otherwise) : *value;
  };
  const Json half{Json::Array{Json(0.5), Json(0.5), Json(0.5)}};
  return object({{"size", object({{"longest_edge", 262144}, {"shortest_edge", 4096}})},
                 {"patch_size", of("patch_size", 16)},
                 {"temporal_patch_size", of("temporal_patch_size", 2)},
                 {"merge_size", of("spatial_merge_size", 2)},
                 {"image_mean", half},
                 {"image_std", half},
                 {"processor_class", "Qwen3VLProcessor"},
                 {kind, std::string(type)}})
      .dump_pretty();
}

}  // namespace

Result<std::vector<MadeFile>> made_tokenizer(const Json& config) {
  const Ids ids = TRY(ids_of(config));
  std::vector<MadeFile> files = {{"tokenizer.json", tokenizer_json(ids)},
                                 {"tokenizer_config.json", tokenizer_config(ids, config)},
                                 {"chat_template.jinja", std::string(kTemplate)},
                                 {"generation_config.json", generation_config(ids)}};
  const Json* vision = config.find("vision_config");
  if (vision == nullptr) return files;
  files.push_back({"preprocessor_config.json",
                   processor(*vision, "image_processor_type", "Qwen2VLImageProcessorFast")});
  files.push_back({"video_preprocessor_config.json",
                   processor(*vision, "video_processor_type", "Qwen3VLVideoProcessor")});
  return files;
}

}  // namespace nibble
