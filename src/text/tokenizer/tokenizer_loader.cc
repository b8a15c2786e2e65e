// Reading order: model, added tokens, pipeline, configuration, and last what must hold of the
// whole.
#include "text/tokenizer/tokenizer_loader.h"

#include <charconv>
#include <unordered_map>
#include <unordered_set>

#include "base/json.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/tokenizer_utf8.h"

namespace nibble {

namespace {

constexpr size_t kFileBytesMax = size_t{128} << 20;
constexpr size_t kMergesMax = size_t{4} << 20;

Error corrupt(std::string_view what, std::string_view expected, std::string_view found) {
  return make_error(ErrorCode::corrupt, {.what = what, .expected = expected, .found = found});
}

Error unsupported(std::string_view part, std::string_view expected, std::string_view found) {
  return make_error(
      ErrorCode::unsupported,
      {.what = concat(part, " is not supported"), .expected = expected, .found = found});
}

std::string shown(const Json* value) {
  if (value == nullptr) return "nothing";
  const std::string text = value->is_object() && value->find("type") != nullptr
                               ? value->find("type")->dump()
                               : value->dump();
  return text.size() <= 120 ? text : concat(value->type_name(), " of ", text.size(), " bytes");
}

bool is_absent(const Json* value) { return value == nullptr || value->is_null(); }

bool has_type(const Json& value, std::string_view type) {
  const Json* found = value.find("type");
  return found != nullptr && found->is_string() && found->as_string() == type;
}

/// A boolean member, `otherwise` if absent or null.
Result<bool> flag(const Json& object, std::string_view key, bool otherwise) {
  const Json* value = object.find(key);
  if (is_absent(value)) return otherwise;
  if (!value->is_bool()) return corrupt(key, "true or false", shown(value));
  return value->as_bool();
}

/// Refuses a member of `object` unless it is absent, null or equal to `neutral`.
Result<void> require_neutral(const Json& object, std::string_view key, const Json& neutral) {
  const Json* value = object.find(key);
  if (is_absent(value) || *value == neutral) return {};
  if (value->is_number() && neutral.is_number() && value->as_double() == neutral.as_double()) {
    return {};
  }
  return unsupported(key, concat("null or ", neutral.dump()), shown(value));
}

// --- model -------------------------------------------------------------------------------------

Result<void> read_vocab(const Json& model, size_t added_count, TokenizerParts& parts) {
  const Json* vocab = model.find("vocab");
  if (vocab == nullptr || !vocab->is_object()) {
    return corrupt("model.vocab", "an object of token: id", shown(vocab));
  }
  parts.vocab = TokenizerVocab(vocab->as_object().size() + added_count);
  for (const auto& [text, id] : vocab->as_object()) {
    if (!id.is_int()) return corrupt("model.vocab", "integer ids", shown(&id));
    TRY(parts.vocab.add(id.as_int(), text));
  }
  const auto& alphabet = byte_level_alphabet();
  for (size_t byte = 0; byte < alphabet.size(); ++byte) {
    const std::string text = byte_level_text(std::string(1, static_cast<char>(byte)));
    const auto id = parts.vocab.find(text);
    if (!id) {
      return unsupported("a vocabulary without all 256 bytes",
                         concat("a token ", quoted_excerpt(text), " for byte ", byte), "none");
    }
    parts.byte_ids[byte] = *id;
  }
  return {};
}

/// One merge: "a b" (transformers 4) or ["a", "b"] (transformers 5).
Result<std::pair<std::string_view, std::string_view>> merge_sides(const Json& merge) {
  if (merge.is_string()) {
    const std::string_view text = merge.as_string();
    const size_t space = text.find(' ');
    if (space != text.npos && text.find(' ', space + 1) == text.npos) {
      return std::pair(text.substr(0, space), text.substr(space + 1));
    }
  } else if (merge.is_array() && merge.as_array().size() == 2 && merge.as_array()[0].is_string() &&
             merge.as_array()[1].is_string()) {
    return std::pair<std::string_view, std::string_view>(merge.as_array()[0].as_string(),
                                                         merge.as_array()[1].as_string());
  }
  return corrupt("model.merges", "\"a b\" or [\"a\", \"b\"]", shown(&merge));
}

Result<void> read_merges(const Json& model, TokenizerParts& parts) {
  const Json* merges = model.find("merges");
  if (merges == nullptr || !merges->is_array() || merges->as_array().size() > kMergesMax) {
    return corrupt("model.merges", concat("a list of at most ", kMergesMax), shown(merges));
  }
  parts.merges.reserve(merges->as_array().size());
  std::string joined;
  for (const Json& merge : merges->as_array()) {
    const auto [left, right] = TRY(merge_sides(merge));
    joined.assign(left).append(right);
    int32_t ids[3];
    size_t filled = 0;
    for (const std::string_view text : {left, right, std::string_view(joined)}) {
      const auto id = parts.vocab.find(text);
      if (!id) {
        return corrupt(concat("model.merges[", parts.merges.size(), "]"),
                       "tokens of the vocabulary", concat("unknown ", quoted_excerpt(text)));
      }
      ids[filled++] = *id;
    }
    parts.merges.push_back({ids[0], ids[1], ids[2]});
  }
  return {};
}

Result<void> read_model(const Json& root, size_t added_count, TokenizerParts& parts) {
  const Json* model = root.find("model");
  if (model == nullptr || !model->is_object()) return corrupt("model", "an object", shown(model));
  // Old files leave the type out; a list of merges is then the mark of BPE.
  if (const Json* type = model->find("type"); !is_absent(type) && *type != Json("BPE")) {
    return unsupported("model.type", "\"BPE\"", shown(type));
  }
  TRY(require_neutral(*model, "dropout", 0));
  TRY(require_neutral(*model, "continuing_subword_prefix", ""));
  TRY(require_neutral(*model, "end_of_word_suffix", ""));
  TRY(require_neutral(*model, "byte_fallback", false));
  if (TRY(flag(*model, "ignore_merges", false))) parts.ignore_merges = IgnoreMerges::yes;
  TRY(read_vocab(*model, added_count, parts));
  return read_merges(*model, parts);
}

// --- added tokens ------------------------------------------------------------------------------

Result<AddedToken> read_added_token(const Json& entry, int64_t id) {
  const Json* content = entry.find("content");
  if (content == nullptr || !content->is_string()) {
    return corrupt(concat("content of added token ", id), "a string", shown(content));
  }
  AddedToken token{.content = content->as_string()};
  if (token.content.size() > AddedTokenMatcher::kContentBytesMax) {
    return corrupt(concat("content of added token ", id),
                   concat("at most ", AddedTokenMatcher::kContentBytesMax, " bytes"),
                   concat(token.content.size()));
  }
  if (TRY(flag(entry, "single_word", false))) {
    return unsupported(concat("single_word of added token ", id), "false", "true");
  }
  token.lstrip = TRY(flag(entry, "lstrip", false));
  token.rstrip = TRY(flag(entry, "rstrip", false));
  token.special = TRY(flag(entry, "special", false));
  token.normalized = TRY(flag(entry, "normalized", !token.special));
  return token;
}

/// Adds or, if its content is known already, replaces an added token.
Result<void> put_added_token(AddedToken token, int64_t id, TokenizerParts& parts) {
  if (const auto known = parts.vocab.find(token.content)) {
    if (*known != id) {
      return corrupt(concat("id of added token ", quoted_excerpt(token.content)),
                     concat(*known, " as in the vocabulary"), concat(id));
    }
  } else {
    TRY(parts.vocab.add(id, token.content));
  }
  token.id = static_cast<int32_t>(id);
  parts.added.push_back(std::move(token));
  return {};
}

Result<void> read_added_tokens(const Json::Array& entries, TokenizerParts& parts) {
  for (const Json& entry : entries) {
    const Json* id = entry.find("id");
    if (id == nullptr || !id->is_int()) {
      return corrupt("added_tokens", "objects with an integer id", shown(&entry));
    }
    AddedToken token = TRY(read_added_token(entry, id->as_int()));
    TRY(put_added_token(std::move(token), id->as_int(), parts));
  }
  return {};
}

// --- pipeline ----------------------------------------------------------------------------------

/// The members of a Sequence, or the one step itself, or nothing.
Result<std::vector<const Json*>> steps_of(const Json& root, std::string_view part,
                                          std::string_view list) {
  std::vector<const Json*> steps;
  const Json* value = root.find(part);
  if (is_absent(value)) return steps;
  if (!has_type(*value, "Sequence")) return std::vector{value};
  const Json* members = value->find(list);
  if (members == nullptr || !members->is_array()) {
    return corrupt(concat(part, ".", list), "a list", shown(members));
  }
  for (const Json& member : members->as_array()) steps.push_back(&member);
  return steps;
}

Result<void> read_normalizer(const Json& root, TokenizerParts& parts) {
  for (const Json* step : TRY(steps_of(root, "normalizer", "normalizers"))) {
    if (!has_type(*step, "NFC")) return unsupported("normalizer", "NFC or none", shown(step));
    parts.normalizer = Normalizer::nfc;
  }
  return {};
}

Result<std::string> read_split(const Json& step) {
  const Json* pattern = step.find("pattern");
  const Json* regex = pattern == nullptr ? nullptr : pattern->find("Regex");
  if (regex == nullptr || !regex->is_string()) {
    return unsupported("pre_tokenizer Split", "a pattern {\"Regex\": ...}", shown(pattern));
  }
  const Json* behavior = step.find("behavior");
  if (behavior == nullptr || *behavior != Json("Isolated")) {
    return unsupported("pre_tokenizer Split behavior", "\"Isolated\"", shown(behavior));
  }
  TRY(require_neutral(step, "invert", false));
  return regex->as_string();
}

Result<void> read_pre_tokenizer(const Json& root, TokenizerParts& parts) {
  bool byte_level = false;
  for (const Json* step : TRY(steps_of(root, "pre_tokenizer", "pretokenizers"))) {
    if (!byte_level && has_type(*step, "Split")) {
      parts.split_patterns.push_back(TRY(read_split(*step)));
    } else if (!byte_level && has_type(*step, "ByteLevel")) {
      byte_level = true;
      if (TRY(flag(*step, "add_prefix_space", true))) {
        return unsupported("add_prefix_space of ByteLevel", "false", "true");
      }
      if (TRY(flag(*step, "use_regex", true))) {
        parts.split_patterns.emplace_back(byte_level_pattern_text());
      }
    } else {
      return unsupported("pre_tokenizer", "Split and a final ByteLevel", shown(step));
    }
  }
  if (!byte_level)
    return unsupported("a pre_tokenizer without ByteLevel", "Split and ByteLevel",
                       shown(root.find("pre_tokenizer")));
  return {};
}

/// truncation and padding are left alone: transformers resets both on every call.
Result<void> read_pipeline(const Json& root, TokenizerParts& parts) {
  TRY(read_normalizer(root, parts));
  TRY(read_pre_tokenizer(root, parts));
  for (const Json* step : TRY(steps_of(root, "post_processor", "processors"))) {
    if (!has_type(*step, "ByteLevel")) {
      return unsupported("post_processor", "ByteLevel or none", shown(step));
    }
  }
  const auto decoders = TRY(steps_of(root, "decoder", "decoders"));
  if (decoders.size() != 1 || !has_type(*decoders[0], "ByteLevel")) {
    return unsupported("decoder", "ByteLevel", shown(root.find("decoder")));
  }
  return {};
}

// --- tokenizer_config.json ---------------------------------------------------------------------

/// The text of a token given as "text" or {"content": "text"}, else empty.
std::string_view token_text(const Json& value) {
  const Json* text = value.is_object() ? value.find("content") : &value;
  return text != nullptr && text->is_string() ? std::string_view(text->as_string())
                                              : std::string_view{};
}

Result<void> read_added_tokens_decoder(const Json& config, TokenizerParts& parts) {
  const Json* decoder = config.find("added_tokens_decoder");
  if (is_absent(decoder)) return {};
  if (!decoder->is_object()) return corrupt("added_tokens_decoder", "an object", shown(decoder));
  for (const auto& [key, entry] : decoder->as_object()) {
    int64_t id = -1;
    const auto end = std::from_chars(key.data(), key.data() + key.size(), id);
    if (end.ec != std::errc() || end.ptr != key.data() + key.size()) {
      return corrupt("added_tokens_decoder", "token ids as keys", quoted_excerpt(key));
    }
    AddedToken token = TRY(read_added_token(entry, id));
    TRY(put_added_token(std::move(token), id, parts));
  }
  return {};
}

/// Tokens that the configuration gives a role are special, whatever their own flag says. Names that
/// are no tokens are passed over: an embedding has no row for them.
void mark_special(const Json& value, TokenizerParts& parts) {
  const std::string_view text = token_text(value);
  const auto id = text.empty() ? std::nullopt : parts.vocab.find(text);
  if (!id) return;
  AddedToken token{.id = *id, .content = std::string(text)};
  for (const AddedToken& known : parts.added) {
    if (known.id == *id) token = known;
  }
  token.special = true;
  parts.added.push_back(std::move(token));
}

Result<void> read_config(const Json& config, TokenizerParts& parts) {
  if (!config.is_object()) return corrupt("the file", "an object", config.type_name());
  TRY(read_added_tokens_decoder(config, parts));
  for (const std::string_view role : {"bos_token", "eos_token", "unk_token", "sep_token",
                                      "pad_token", "cls_token", "mask_token"}) {
    if (const Json* value = config.find(role)) mark_special(*value, parts);
  }
  for (const std::string_view list : {"additional_special_tokens", "extra_special_tokens"}) {
    const Json* value = config.find(list);
    if (value != nullptr && value->is_array()) {
      for (const Json& entry : value->as_array()) mark_special(entry, parts);
    } else if (value != nullptr && value->is_object()) {
      for (const auto& member : value->as_object()) mark_special(member.value, parts);
    }
  }
  if (const Json* eos = config.find("eos_token")) {
    parts.eos_token_id = parts.vocab.find(token_text(*eos));
  }
  return {};
}

// --- the whole ---------------------------------------------------------------------------------

/// Keeps the last mention of each added token; special once is special for ever, as in Hugging
/// Face.
void keep_last_mentions(std::vector<AddedToken>& added) {
  std::unordered_map<int32_t, size_t> place;
  std::vector<AddedToken> kept;
  for (AddedToken& token : added) {
    const auto [known, is_new] = place.try_emplace(token.id, kept.size());
    if (is_new) {
      kept.push_back(std::move(token));
    } else {
      token.special |= kept[known->second].special;
      kept[known->second] = std::move(token);
    }
  }
  added = std::move(kept);
}

/// A special token that merges could build would let user text become it.
Result<void> check_special_unreachable(const TokenizerParts& parts) {
  std::unordered_set<int32_t> special;
  for (const AddedToken& token : parts.added) {
    if (token.special) special.insert(token.id);
  }
  const auto refuse = [&](int32_t id) {
    return unsupported(concat("special token ", quoted_excerpt(parts.vocab.text(id)),
                              " that ordinary text can become"),
                       "special tokens apart from bytes and merges",
                       concat("id ", id, " among them"));
  };
  for (const int32_t id : parts.byte_ids) {
    if (special.contains(id)) return refuse(id);
  }
  for (const BpeMerge& merge : parts.merges) {
    if (special.contains(merge.result)) return refuse(merge.result);
  }
  return {};
}

template <typename T>
Result<T> named(std::string_view source, Result<T> result) {
  if (result.ok()) return result;
  return Error{result.error().code, concat(source, ": ", result.error().message)};
}

Result<void> read_tokenizer(const Json& root, TokenizerParts& parts) {
  const Json* added = root.find("added_tokens");
  const Json none{Json::Array{}};
  if (is_absent(added)) added = &none;
  if (!added->is_array()) return corrupt("added_tokens", "a list", shown(added));
  TRY(read_model(root, added->as_array().size(), parts));
  TRY(read_added_tokens(added->as_array(), parts));
  return read_pipeline(root, parts);
}

}  // namespace

Result<TokenizerParts> parse_tokenizer_files(std::string_view tokenizer_json,
                                             std::string_view config_json,
                                             std::string_view source) {
  const JsonLimits limits{.bytes_max = kFileBytesMax};
  const std::string_view config_source = "tokenizer_config.json";
  TokenizerParts parts;
  {
    const Json root = TRY(parse_json(tokenizer_json, source, limits));
    TRY(named(source, read_tokenizer(root, parts)));
  }
  if (!config_json.empty()) {
    const Json config = TRY(parse_json(config_json, config_source, limits));
    TRY(named(config_source, read_config(config, parts)));
  }
  keep_last_mentions(parts.added);
  TRY(named(source, check_special_unreachable(parts)));
  return parts;
}

}  // namespace nibble
