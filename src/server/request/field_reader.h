// FieldReader: typed, bounded reads from a request object. The first refusal is kept and every
// later read returns its fallback, so a parser reads straight through and looks once at the end.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/http/api_error.h"

namespace nibble {

/// The names of fields for which a request was searched.
using AskedFields = std::set<std::string, std::less<>>;

class FieldReader {
 public:
  /// `asked`, if there is one, gets every name that is read, there or not.
  explicit FieldReader(const Json& object, AskedFields* asked = nullptr)
      : object_(object), asked_(asked) {}

  /// The member if present and not null.
  const Json* find(std::string_view name) const;
  std::optional<double> number(std::string_view name, double least, double most);
  std::optional<int64_t> integer(std::string_view name, int64_t least, int64_t most);
  std::optional<bool> flag(std::string_view name);
  std::optional<std::string> text(std::string_view name);

  /// Records a refusal unless there is one already.
  void refuse(std::string_view name, const ErrorParts& parts);
  /// Refuses a field that asks for something this server does not do. `harmless`: values that mean
  /// "off" and pass.
  void unsupported(std::string_view name, std::initializer_list<Json> harmless = {});

  const std::optional<ApiError>& error() const { return error_; }
  void set_error(ApiError error) {
    if (!error_) error_ = std::move(error);
  }

 private:
  const Json& object_;
  AskedFields* asked_;
  std::optional<ApiError> error_;
};

}  // namespace nibble
