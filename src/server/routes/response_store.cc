// Entries are JSON text; a chain of responses is flattened when it is stored, so that one may go
// without breaking those that came after it.
#include "server/routes/response_store.h"

#include "server/answer/response_json.h"
#include "server/request/field_reader.h"

namespace nibble {

namespace {

/// Items of an input that is a string or a list; what is neither is left for the parser to refuse.
Json::Array items_of(const Json& input) {
  if (input.is_array()) return input.as_array();
  return {json_object({{"type", Json("message")},
                       {"role", Json("user")},
                       {"content", Json(Json::Array{json_object(
                                       {{"type", Json("input_text")}, {"text", input}})})}})};
}

}  // namespace

void ResponseStore::put(uint64_t tenant, const Json& response, const Json& input) {
  Entry entry{.tenant = tenant,
              .id = response.find("id")->as_string(),
              .response = response.dump(),
              .input = input.dump()};
  const size_t bytes = entry.bytes();
  if (!enabled() || bytes > limits_.bytes_max) return;
  const std::lock_guard lock(mutex_);
  while (entries_.size() >= limits_.responses_max || bytes_ + bytes > limits_.bytes_max)
    drop(std::string(entries_.front().id));
  bytes_ += bytes;
  entries_.push_back(std::move(entry));
  by_id_[entries_.back().id] = std::prev(entries_.end());
}

const ResponseStore::Entry* ResponseStore::find(uint64_t tenant, const std::string& id) const {
  const auto found = by_id_.find(id);
  if (found == by_id_.end() || found->second->tenant != tenant) return nullptr;
  return &*found->second;
}

std::optional<Json> ResponseStore::response(uint64_t tenant, const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const Entry* entry = find(tenant, id);
  if (entry == nullptr) return std::nullopt;
  return parse_json(entry->response, "a stored response").value();
}

std::optional<Json> ResponseStore::input(uint64_t tenant, const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const Entry* entry = find(tenant, id);
  if (entry == nullptr) return std::nullopt;
  return parse_json(entry->input, "a stored input").value();
}

void ResponseStore::drop(const std::string& id) {
  const auto found = by_id_.find(id);
  bytes_ -= found->second->bytes();
  entries_.erase(found->second);
  by_id_.erase(found);
}

bool ResponseStore::remove(uint64_t tenant, const std::string& id) {
  const std::lock_guard lock(mutex_);
  if (find(tenant, id) == nullptr) return false;
  drop(id);
  return true;
}

size_t ResponseStore::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

std::variant<ContinuedBody, ApiError> continue_response(const ResponseStore& store, uint64_t tenant,
                                                        std::string body, int json_depth_max) {
  auto parsed = parse_json(body, "the request body",
                           {.bytes_max = body.size() + 1, .depth_max = json_depth_max});
  const bool sound = parsed.ok() && parsed.value().is_object();
  const Json* input = sound ? parsed.value().find("input") : nullptr;
  if (input == nullptr || !(input->is_string() || input->is_array()))
    return ContinuedBody{std::move(body), {}};
  Json whole = std::move(parsed).value();
  StoredInput stored{.items = Json(Json::Array{}), .previous = {}};
  Json::Array& items = stored.items.as_array();
  const Json* previous = whole.find("previous_response_id");
  if (previous != nullptr && previous->is_string()) {
    stored.previous = previous->as_string();
    const auto response = store.response(tenant, stored.previous);
    const auto before = store.input(tenant, stored.previous);
    if (!response || !before)
      return ApiError{.message = concat("there is no stored response ", shown(*previous)),
                      .param = "previous_response_id",
                      .code = "previous_response_not_found"};
    items = before->as_array();
    for (const Json& item : response->find("output")->as_array()) items.push_back(item);
    whole.set("previous_response_id", Json());
  }
  for (Json& item : items_of(*whole.find("input"))) {
    if (item.is_object() && item.find("id") == nullptr) item.set("id", Json(random_id("item_")));
    items.push_back(std::move(item));
  }
  const Json* wanted = whole.find("store");
  whole.set("input", stored.items);
  ContinuedBody continued{whole.dump(), {}};
  if (wanted == nullptr || *wanted != Json(false)) continued.stored = std::move(stored);
  return continued;
}

}  // namespace nibble
