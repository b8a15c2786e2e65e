// For tests: a model whose tokenizer has one token per byte (id = byte value) and the tags of the
// family, with a small chat template; and a backend that says a script, whatever it is asked.
#pragma once

#include <chrono>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "model/backend.h"
#include "model/forward.h"
#include "server/served_model.h"

namespace nibble::testing {

inline constexpr int32_t kImStart = 256;
inline constexpr int32_t kImEnd = 257;
inline constexpr int32_t kThink = 258;
inline constexpr int32_t kEndThink = 259;
inline constexpr int32_t kToolCall = 260;
inline constexpr int32_t kEndToolCall = 261;
inline constexpr int32_t kVisionStart = 262;
inline constexpr int32_t kVisionEnd = 263;
inline constexpr int32_t kImagePad = 264;
inline constexpr int32_t kVideoPad = 265;
inline constexpr int32_t kVocabRows = 300;  // the last ones are padding
inline constexpr int32_t kNanToken = -7;    // in a script: this position computes NaN

/// The character that stands for a byte in byte-level BPE (GPT-2's table).
inline std::string byte_symbol(int byte) {
  const auto plain = [](int b) {
    return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
  };
  int code = byte;
  if (!plain(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += plain(b) ? 0 : 1;
  }
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

inline std::string tokenizer_json() {
  Json vocab(Json::Object{});
  for (int byte = 0; byte < 256; ++byte) vocab.set(byte_symbol(byte), Json(byte));
  const auto added = [](int32_t id, const char* content, const char* special) {
    return concat(R"({"id":)", id, R"(,"content":")", content,
                  R"(","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,)",
                  R"("special":)", special, "}");
  };
  const std::string regex = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
                            R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const std::string byte_level =
      R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":false})";
  return concat(
      R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)",
      added(kImStart, "<|im_start|>", "true"), ",", added(kImEnd, "<|im_end|>", "true"), ",",
      added(kThink, "<think>", "false"), ",", added(kEndThink, "</think>", "false"), ",",
      added(kToolCall, "<tool_call>", "false"), ",", added(kEndToolCall, "</tool_call>", "false"),
      ",", added(kVisionStart, "<|vision_start|>", "true"), ",",
      added(kVisionEnd, "<|vision_end|>", "true"), ",", added(kImagePad, "<|image_pad|>", "true"),
      ",", added(kVideoPad, "<|video_pad|>", "true"),
      R"(],"normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"Sequence",)",
      R"("pretokenizers":[{"type":"Split","pattern":{"Regex":)", Json(regex).dump(),
      R"(},"behavior":"Isolated","invert":false},)", byte_level, R"(]},"post_processor":)",
      byte_level, R"(,"decoder":)", byte_level,
      R"(,"model":{"type":"BPE","dropout":null,"unk_token":null,)",
      R"("continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,)",
      R"("byte_fallback":false,"ignore_merges":false,"vocab":)", vocab.dump(), R"(,"merges":[]}})");
}

inline constexpr std::string_view kTemplate =
    "{%- if tools %}{{- '<|im_start|>system\\n' + (tools | tojson) + '<|im_end|>\\n' }}{%- endif %}"
    "{%- for m in messages %}{%- if m.role not in ['system','user','assistant','tool'] %}"
    "{{- raise_exception('Unexpected message role.') }}{%- endif %}"
    "{{- '<|im_start|>' + m.role + '\\n' }}"
    "{%- if m.content is string %}{{- m.content }}{%- elif m.content %}"
    "{%- for part in m.content %}{{- part.text }}{%- endfor %}{%- endif %}"
    "{{- '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- if enable_thinking is "
    "defined and not enable_thinking %}"
    "{{- '<think>\\n\\n</think>\\n\\n' }}{%- else %}{{- '<think>\\n' }}{%- endif %}"
    "{%- endif %}";

inline ServedModel served_model() {
  auto tokenizer = Tokenizer::parse(tokenizer_json(), "", "the test tokenizer");
  CHECK(tokenizer.ok(), tokenizer.error().message);
  auto chat_template = ChatTemplate::compile(kTemplate, "the test template");
  CHECK(chat_template.ok(), chat_template.error().message);
  ServedModel model{.names = {"tiny", "alias"}, .tokenizer = std::move(tokenizer).value()};
  model.chat_template = std::move(chat_template).value();
  model.sampling.temperature = 0.0;
  model.stop_ids = {kImEnd};
  model.thinking_close = {'\n', kEndThink};
  model.tags = {kThink, kEndThink, kToolCall, kEndToolCall};
  model.context_max = 1024;
  model.vocab_rows = kVocabRows;
  model.created = 1;
  return model;
}

/// The same where answers may be asked for in a form.
inline ServedModel served_model_with_grammars() {
  ServedModel model = served_model();
  model.grammars =
      std::make_shared<GrammarCompiler>([words = model.grammar_vocabulary()] { return words; });
  return model;
}

inline ModelConfig model_config() {
  ModelConfig config;
  config.hidden = 1;
  config.vocab_rows = kVocabRows;
  config.layers = {LayerKind::attention};
  config.dense_width = 1;
  config.max_positions = 4096;
  return config;
}

/// A script from text with tags: "hi</think>\n\nyes" becomes bytes and tag ids, ended by
/// <|im_end|>.
inline std::vector<int32_t> script_of(const std::string& text) {
  const ServedModel model = served_model();
  auto ids = model.tokenizer.encode(text, SpecialTokens::recognised);
  CHECK(ids.ok());
  std::vector<int32_t> script = std::move(ids).value();
  script.push_back(kImEnd);
  return script;
}

/// Says script[k] as the k-th token of every sequence; past its end, 'x' for ever. Rows inside a
/// prompt, looked at for its log-probabilities, expect 'p'.
class ScriptedBackend : public Backend {
 public:
  explicit ScriptedBackend(std::vector<int32_t> script, std::chrono::milliseconds pass_time = {})
      : script_(std::move(script)), pass_time_(pass_time) {}
  std::string_view name() const override { return "scripted"; }
  std::string arithmetic() override { return "scripted"; }
  std::string description() const override { return "scripted"; }
  Result<void> reserve(const PoolSizes& sizes) override {
    said_.assign(static_cast<size_t>(sizes.state_slots), 0);
    host_said_.assign(static_cast<size_t>(sizes.host_slots), 0);
    return {};
  }
  int64_t page_bytes() const override { return 1; }
  int64_t state_slot_bytes() const override { return 1; }
  Residual embed(const Batch& batch) override {
    if (pass_time_.count() > 0) std::this_thread::sleep_for(pass_time_);
    return {.rows = batch.rows()};
  }
  Residual attention_block(int, const Batch&, Residual h) override { return h; }
  Residual delta_net_block(int, const Batch&, Residual h) override { return h; }
  Residual moe_block(int, const Batch&, Residual h) override { return h; }
  Residual dense_mlp_block(int, const Batch&, Residual h) override { return h; }
  HeadOutput head(const Batch& batch, Residual) override {
    logits_.assign(batch.logit_rows.size() * kVocabRows, 0.0F);
    for (size_t i = 0; i < batch.logit_rows.size(); ++i) {
      for (const BatchSequence& s : batch.sequences) {
        const int32_t row = batch.logit_rows[i];
        if (row < s.row_begin || row >= s.row_begin + s.row_count) continue;
        size_t& said = said_[static_cast<size_t>(s.state_out)];
        const bool in_prompt = row + 1 < s.row_begin + s.row_count;
        const int32_t token = in_prompt ? 'p' : said < script_.size() ? script_[said] : 'x';
        said += in_prompt ? 0 : 1;
        float* logits = logits_.data() + i * kVocabRows;
        if (token == kNanToken)
          logits[0] = std::numeric_limits<float>::quiet_NaN();
        else
          logits[token] = 10.0F;
      }
    }
    return {.logits = logits_, .hidden = {}};
  }
  void zero_states(std::span<const int32_t> slots) override {
    for (const int32_t id : slots) slot(id) = 0;
  }
  void move_pages(CacheMove, std::span<const IdPair>) override {}
  void move_states(CacheMove move, std::span<const IdPair> slots) override {
    for (const auto [from, to] : slots)
      (move == CacheMove::store ? host_slot(to) : slot(to)) =
          move == CacheMove::load ? host_slot(from) : slot(from);
  }
  std::span<std::byte> host_page(int32_t) override { return {}; }
  std::span<std::byte> host_state(int32_t) override { return {}; }
  bool finite(std::span<const int32_t>, std::span<const int32_t>) override { return true; }
  void poison_page(int32_t) override {}
  void poison_state(int32_t) override {}
  Result<void> sleep() override { return {}; }

 private:
  std::vector<int32_t> script_;
  std::chrono::milliseconds pass_time_;
  size_t& slot(int32_t id) { return said_[static_cast<size_t>(id)]; }
  size_t& host_slot(int32_t id) { return host_said_[static_cast<size_t>(id)]; }

  std::vector<size_t> said_, host_said_;
  std::vector<float> logits_;
};

}  // namespace nibble::testing
