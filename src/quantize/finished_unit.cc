// An object of three members.
#include "quantize/finished_unit.h"

#include <algorithm>

#include "base/sha256.h"

namespace nibble {
namespace {

bool is_hash(const Json* json) {
  return json != nullptr && json->is_string() && is_sha256_hex(json->as_string());
}

}  // namespace

Json FinishedUnit::json() const {
  Json hashes{Json::Array()};
  for (const std::string& hash : tensor_hashes) hashes.push_back(hash);
  return json_object({{"outcomes", outcomes}, {"source", source_hash}, {"tensors", hashes}});
}

Result<FinishedUnit> FinishedUnit::parse(const Json& json, size_t tensors) {
  const Json* outcomes = json.find("outcomes");
  const Json* source = json.find("source");
  const Json* hashes = json.find("tensors");
  const bool sound =
      outcomes != nullptr && is_hash(source) && hashes != nullptr && hashes->is_array() &&
      hashes->as_array().size() == tensors &&
      std::ranges::all_of(hashes->as_array(), [](const Json& hash) { return is_hash(&hash); });
  if (!sound)
    return make_error(
        ErrorCode::corrupt,
        {.what = "the journal of an unfinished output",
         .expected = concat("outcomes, and hashes of the source and of ", tensors, " tensors"),
         .found = json.dump().substr(0, 60),
         .advice = "remove the output and begin again"});
  FinishedUnit unit{.outcomes = *outcomes, .source_hash = source->as_string()};
  for (const Json& hash : hashes->as_array()) unit.tensor_hashes.push_back(hash.as_string());
  return unit;
}

}  // namespace nibble
