// Words and tables for what is in the Hugging Face cache, shared by `ls`, `rm` and `show`.
#pragma once

#include <string>
#include <vector>

#include "cli/verb.h"
#include "hub/cache_scan.h"

namespace nibble {

/// A model of the cache and one of its revisions; nullptr: the whole model was asked for.
struct CachedChoice {
  CachedModel model;
  std::string commit;  // empty: no revision was named
};

/// The model that the first positional and --revision mean: ORG/NAME[@REV] or an alias. A revision
/// may be a branch, a tag, a commit or at least 7 digits that begin one. Errors: not_found,
/// invalid_argument.
Result<CachedChoice> find_cached(const Arguments& arguments);

/// "2026-11-24", in local time; "-" for 0.
std::string day_text(int64_t seconds);
/// "1,234.5 MB" as "1234.5 MB", in units of 1e6 or 1e9 bytes.
std::string size_text(uint64_t bytes);
/// Columns of equal width with two blanks between; those of `right` are aligned to the right.
std::string table_text(const std::vector<std::vector<std::string>>& rows,
                       const std::vector<size_t>& right);

}  // namespace nibble
