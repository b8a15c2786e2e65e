// The facts that the journal of an unfinished output keeps of a finished unit of work: enough to
// write the report without doing it again, and to see whether its source is still the same.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace nibble {

struct FinishedUnit {
  Json outcomes = {};
  std::string source_hash;                 // SHA-256 of the weights that it read
  std::vector<std::string> tensor_hashes;  // SHA-256 of each tensor that it wrote, in its order

  Json json() const;
  /// Reads what json() wrote of a unit with so many tensors. Errors: corrupt.
  static Result<FinishedUnit> parse(const Json& json, size_t tensors);
};

}  // namespace nibble
