// SchemaValidity: does a JSON value obey a JSON Schema (draft 7)? Not a maker of values:
// src/grammar holds answers to schemas while they are made; this judges what any server sent.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace nibble {

class SchemaValidity {
 public:
  /// Errors: invalid_argument, naming `what`, for a schema that is none, a keyword of a later draft
  /// (which would pass unseen), a reference out of the schema or one that never ends.
  static Result<SchemaValidity> compile(const Json& schema, std::string_view what);

  /// An empty text if `value` obeys; else what does not, in one line. Errors: unsupported for a
  /// string that is too long to be matched with a pattern.
  Result<std::string> fault_of(const Json& value) const;

 private:
  struct Compiled;
  explicit SchemaValidity(std::shared_ptr<const Compiled> compiled)
      : compiled_(std::move(compiled)) {}
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace nibble
