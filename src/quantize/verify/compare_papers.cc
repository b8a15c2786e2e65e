// Trees of JSON are walked together; other files are compared by their bytes.
#include "quantize/verify/compare_papers.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/file.h"
#include "checkpoint/companion_files.h"
#include "checkpoint/safetensors_header.h"

namespace nibble {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kPaperBytesMax = uint64_t{256} << 20;
constexpr size_t kShownMax = 60;
/// Keys that say how a file was saved and change no result.
constexpr std::array<std::string_view, 6> kFreeKeys = {
    "quantization_config", "transformers_version",
    "torch_dtype",         "dtype",
    "_name_or_path",       "use_cache"};
/// Endings of files that engines read.
constexpr std::array<std::string_view, 6> kReadEndings = {".json",  ".jinja",    ".txt",
                                                          ".model", ".tiktoken", ".jsonl"};

bool is_free(std::string_view key) { return std::ranges::find(kFreeKeys, key) != kFreeKeys.end(); }

std::string shown(const Json& value) { return value.dump().substr(0, kShownMax); }

/// A merge of a tokenizer: "a b" in one version of the library, ["a", "b"] in another.
bool is_same_merge(const Json& a, const Json& b) {
  if (a.is_string() && b.is_array()) return is_same_merge(b, a);
  if (!a.is_array() || !b.is_string() || a.as_array().size() != 2) return false;
  const Json &left = a.as_array()[0], &right = a.as_array()[1];
  return left.is_string() && right.is_string() &&
         concat(left.as_string(), " ", right.as_string()) == b.as_string();
}

/// No affix of a tokenizer's tokens: null in one version of the library, "" in another.
bool is_same_affix(const Json& a, const Json& b, std::string_view at) {
  if (!at.ends_with("continuing_subword_prefix") && !at.ends_with("end_of_word_suffix"))
    return false;
  return (a.is_null() && b == Json("")) || (b.is_null() && a == Json(""));
}

/// Names that transformers 5 shortened or made longer: processors without "Fast", towers with
/// "_vision".
bool is_same_name(const Json& a, const Json& b, std::string_view at) {
  if (!at.ends_with("_type") || !a.is_string() || !b.is_string()) return false;
  std::string_view shorter = a.as_string(), longer = b.as_string();
  if (shorter.size() > longer.size()) std::swap(shorter, longer);
  if (!longer.starts_with(shorter)) return false;
  longer.remove_prefix(shorter.size());
  return longer == "Fast" || longer == "_vision";
}

bool is_same_number(const Json& a, const Json& b) {
  return a.is_number() && b.is_number() && a.as_double() == b.as_double();
}

class JsonComparer {
 public:
  JsonComparer(std::string file, PaperComparison& out) : file_(std::move(file)), out_(out) {}
  /// `now` is of the checkpoint, `before` of the source, both at the same path.
  void compare(const Json& now, const Json& before, const std::string& at);
  int64_t same() const { return same_; }

 private:
  void compare_objects(const Json& now, const Json& before, const std::string& at);
  void add(Severity severity, std::string text) {
    out_.differences.push_back({severity, file_, std::move(text)});
  }

  std::string file_;
  PaperComparison& out_;
  int64_t same_ = 0;
};

void JsonComparer::compare(const Json& now, const Json& before, const std::string& at) {
  if (now.is_object() && before.is_object()) return compare_objects(now, before, at);
  if (now.is_array() && before.is_array() && now.as_array().size() == before.as_array().size()) {
    const size_t differences = out_.differences.size();
    for (size_t i = 0; i < now.as_array().size(); ++i) {
      compare(now.as_array()[i], before.as_array()[i], concat(at, "[", i, "]"));
      if (out_.differences.size() > differences) return;  // the first of a list says enough
    }
    return;
  }
  ++same_;
  if (now == before || is_same_number(now, before) || is_same_merge(now, before) ||
      is_same_affix(now, before, at) || is_same_name(now, before, at))
    return;
  --same_;
  add(Severity::error,
      concat(at, ": expected ", shown(before), " as in the source, found ", shown(now)));
}

void JsonComparer::compare_objects(const Json& now, const Json& before, const std::string& at) {
  const auto path = [&](const std::string& key) { return at.empty() ? key : concat(at, ".", key); };
  for (const auto& [key, value] : before.as_object()) {
    if (is_free(key)) continue;
    const Json* there = now.find(key);
    if (there != nullptr) {
      compare(*there, value, path(key));
    } else if (!value.is_null()) {
      add(file_ == "config.json" ? Severity::error : Severity::warning,
          concat(path(key), ": is missing; the source has ", shown(value)));
    }
  }
  for (const auto& [key, value] : now.as_object())
    if (!is_free(key) && before.find(key) == nullptr && !value.is_null())
      add(Severity::warning, concat(path(key), ": ", shown(value), " was added"));
}

bool is_read(const fs::path& file) {
  return std::ranges::find(kReadEndings, file.extension().string()) != kReadEndings.end();
}

/// Written anew by whoever quantizes.
bool is_new(const fs::path& file) {
  const std::string name = file.filename().string();
  return file.extension() == ".md" || name.starts_with("quantize_") || name.starts_with("recipe.");
}

Result<Json> parse_paper(std::string_view text, std::string_view name) {
  return parse_json(text, name,
                    {.bytes_max = kPaperBytesMax, .duplicate_keys = DuplicateKeys::keep_last});
}

Result<void> compare_file(const fs::path& file, const fs::path& folder, const fs::path& source,
                          PaperComparison& out) {
  const std::string name = quoted_name(file.generic_string());
  const std::string now = TRY(read_text_file(folder / file, kPaperBytesMax));
  const std::string before = TRY(read_text_file(source / file, kPaperBytesMax));
  const size_t differences = out.differences.size();
  if (now != before) {
    const auto one = parse_paper(now, name);
    const auto other = parse_paper(before, name);
    if (file.extension() == ".json" && one.ok() && other.ok())
      JsonComparer(file.generic_string(), out).compare(one.value(), other.value(), "");
    else
      out.differences.push_back({Severity::error, name,
                                 concat("expected the source's ", before.size(), " bytes, found ",
                                        now.size(), " others")});
  }
  out.files += out.differences.size() == differences;
  return {};
}

/// Members of processor_config.json, where transformers 5 saves what had a file of its own.
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kMoved = {
    {{"preprocessor_config.json", "image_processor"},
     {"video_preprocessor_config.json", "video_processor"}}};

/// Compares a file that the checkpoint does not have with the member that took its place. False if
/// there is none.
Result<bool> compare_moved(const fs::path& file, const fs::path& folder, const fs::path& source,
                           PaperComparison& out) {
  const std::string name = "processor_config.json";
  std::error_code failure;
  const auto* moved =
      std::ranges::find(kMoved, file.string(), [](const auto& row) { return row.first; });
  if (moved == kMoved.end() || !fs::is_regular_file(folder / name, failure)) return false;
  const auto now = parse_paper(TRY(read_text_file(folder / name, kPaperBytesMax)), name);
  const auto before =
      parse_paper(TRY(read_text_file(source / file, kPaperBytesMax)), file.string());
  const Json* member = now.ok() ? now.value().find(moved->second) : nullptr;
  if (member == nullptr || !before.ok()) return false;
  const size_t differences = out.differences.size();
  JsonComparer(name, out).compare(*member, before.value(), std::string(moved->second));
  out.files += out.differences.size() == differences;
  return true;
}

}  // namespace

Result<PaperComparison> compare_papers(const Checkpoint& checkpoint, const Checkpoint& source) {
  PaperComparison out;
  JsonComparer config("config.json", out);
  config.compare(checkpoint.config(), source.config(), "");
  out.keys = config.same();
  const auto before = TRY(companion_files(source.folder()));
  for (const fs::path& file : before) {
    std::error_code failure;
    if (is_new(file)) continue;
    if (fs::is_regular_file(checkpoint.folder() / file, failure)) {
      TRY(compare_file(file, checkpoint.folder(), source.folder(), out));
    } else if (!TRY(compare_moved(file, checkpoint.folder(), source.folder(), out))) {
      out.differences.push_back({is_read(file) ? Severity::error : Severity::warning,
                                 quoted_name(file.generic_string()),
                                 "is missing; the source has it"});
    }
  }
  for (const fs::path& file : TRY(companion_files(checkpoint.folder())))
    if (is_read(file) && !is_new(file) && std::ranges::find(before, file) == before.end())
      out.differences.push_back({Severity::warning, quoted_name(file.generic_string()),
                                 "was added; the source has no such file"});
  return out;
}

}  // namespace nibble
