// Keys: who may ask, and what each may do. Keys are kept as SHA-256 only; a file of them has one
// JSON object a line. What a key has used so far is counted in quotas.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/file_watch.h"
#include "server/filters/filter_store.h"
#include "server/http/http.h"

namespace nibble {

/// salted: prefixes are shared with this key's own requests only. shared: with all such keys.
enum class CacheSharing : uint8_t { salted, shared };

struct KeyRules {
  std::string name;                   // in log lines; never the key
  std::string sha256;                 // hash of the key, 64 lower-case hex digits
  std::vector<std::string> profiles;  // profiles that it may use; empty: all, and none
  double weight = 1.0;                // weight of its share of prefill time
  int32_t concurrent_max = 0;         // requests at once; 0: no limit
  int32_t requests_per_minute = 0;    // 0: no limit
  int64_t tokens_per_minute = 0;      // tokens of prompts and answers a minute; 0: no limit
  int32_t priority_least = -1000;
  int32_t priority_most = 1000;
  CacheSharing cache = CacheSharing::salted;
  FilterSet filters;  // filters in addition to the server's
};

class Keys {
 public:
  /// A key in clear, with no limits.
  void add(std::string_view key);
  /// Adds those of a file's text: lines of
  ///   {"name": "alice", "sha256": "..."}, and any of "profiles": [...], "weight",
  ///   "max_concurrent", "requests_per_minute", "tokens_per_minute", "priority": [least, most],
  ///   "cache": "shared", "filters": ["regex:FILE", ...]
  /// Empty lines and lines that begin with # are left out. Filters are of `filters`. Errors:
  /// corrupt, with the line's number; a name or a key that stands twice; no key at all.
  Result<void> add_lines(std::string_view text, std::string_view source, FilterStore& filters);

  bool empty() const { return rules_.empty(); }
  size_t size() const { return rules_.size(); }
  /// The rules of a key, or nothing. The time depends on the number of keys and the length alone.
  std::shared_ptr<const KeyRules> find(std::string_view key) const;

 private:
  Result<void> add_rules(KeyRules rules, std::string_view source);
  std::vector<std::shared_ptr<const KeyRules>> rules_;
};

/// A file of keys that may change while it is used.
class KeyFile {
 public:
  explicit KeyFile(const std::filesystem::path& path) : path_(path), watch_({path}) {}
  /// The file's text if it is another one than last time. Errors: those of read_text_file, each
  /// once, not at every look.
  Result<std::optional<std::string>> changed_text();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  FileWatch watch_;
};

/// The key of `Authorization: Bearer KEY` or `x-api-key: KEY`.
std::string_view key_of(const HttpRequest& request);

}  // namespace nibble
