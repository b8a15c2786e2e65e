// valijson over RapidJSON values.
#include "eval/schema_validity.h"

#include <rapidjson/document.h>

#include <algorithm>
#include <exception>
#include <valijson/adapters/rapidjson_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validation_results.hpp>
#include <valijson/validator.hpp>

#include "eval/schema_walk.h"

namespace nibble {
namespace {

constexpr size_t kMatchedBytesMax = 10'000;  // std::regex takes stack for every character

/// RapidJSON's form. A number without a fraction becomes an integer, as drafts since 6 have it.
rapidjson::Value rapid(const Json& json, rapidjson::Document::AllocatorType& memory) {
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (json.is_bool()) return rapidjson::Value(json.as_bool());
  if (json.is_int()) return rapidjson::Value(json.as_int());
  if (json.is_double()) {
    const double number = json.as_double();
    if (number >= -kExact && number <= kExact && number == static_cast<double>(int64_t(number)))
      return rapidjson::Value(static_cast<int64_t>(number));
    return rapidjson::Value(number);
  }
  const auto text = [&](const std::string& words) {
    return rapidjson::Value(words.data(), static_cast<rapidjson::SizeType>(words.size()), memory);
  };
  if (json.is_string()) return text(json.as_string());
  if (json.is_array()) {
    rapidjson::Value list(rapidjson::kArrayType);
    for (const Json& each : json.as_array()) list.PushBack(rapid(each, memory), memory);
    return list;
  }
  if (!json.is_object()) return rapidjson::Value();
  rapidjson::Value object(rapidjson::kObjectType);
  for (const auto& [key, each] : json.as_object())
    object.AddMember(text(key), rapid(each, memory), memory);
  return object;
}

size_t longest_string(const Json& json) {
  size_t longest = json.is_string() ? json.as_string().size() : 0;
  if (json.is_array())
    for (const Json& each : json.as_array()) longest = std::max(longest, longest_string(each));
  if (json.is_object())
    for (const auto& [key, each] : json.as_object())
      longest = std::max({longest, key.size(), longest_string(each)});
  return longest;
}

std::string one_line(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c >= 0 && c < ' '; }, ' ');
  return text;
}

}  // namespace

struct SchemaValidity::Compiled {
  valijson::Schema schema;
  bool patterns = false;
};

Result<SchemaValidity> SchemaValidity::compile(const Json& schema, std::string_view what) {
  TRY(check_schema_form(schema, what));
  auto compiled = std::make_shared<Compiled>();
  compiled->patterns = has_patterns(schema);
  rapidjson::Document memory;
  const rapidjson::Value value = rapid(schema, memory.GetAllocator());
  try {
    valijson::SchemaParser parser(valijson::SchemaParser::kDraft7);
    parser.populateSchema(valijson::adapters::RapidJsonAdapter(value), compiled->schema);
  } catch (const std::exception& error) {
    return make_error(
        ErrorCode::invalid_argument,
        {.what = std::string(what), .expected = "a JSON Schema", .found = one_line(error.what())});
  }
  return SchemaValidity(std::move(compiled));
}

Result<std::string> SchemaValidity::fault_of(const Json& value) const {
  if (compiled_->patterns && longest_string(value) > kMatchedBytesMax)
    return make_error(ErrorCode::unsupported,
                      {.what = "a string to be matched with a pattern",
                       .expected = concat("at most ", kMatchedBytesMax, " bytes"),
                       .found = concat(longest_string(value))});
  rapidjson::Document memory;
  const rapidjson::Value target = rapid(value, memory.GetAllocator());
  try {
    valijson::Validator validator(valijson::Validator::kStrongTypes);
    valijson::ValidationResults results;
    if (validator.validate(compiled_->schema, valijson::adapters::RapidJsonAdapter(target),
                           &results))
      return std::string();
    valijson::ValidationResults::Error error;
    if (!results.popError(error)) return std::string("does not obey the schema");
    std::string place;
    for (const auto& part : error.context) place += part;
    return one_line(concat(place, ": ", error.description));
  } catch (const std::exception& error) {  // a pattern that std::regex does not know
    return make_error(ErrorCode::unsupported, {.what = one_line(error.what())});
  }
}

}  // namespace nibble
