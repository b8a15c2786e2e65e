// Parts under the names of OpenAI's chats and responses; Anthropic's blocks come translated.
#include "server/images/sent_images.h"

#include <algorithm>
#include <optional>

#include "media/data_url.h"

namespace nibble {

namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

bool begins_with(std::string_view text, std::string_view word) {
  return std::ranges::equal(text.substr(0, word.size()), word, {}, lower);
}

const std::string* text_in(const Json& object, std::string_view name) {
  const Json* value = object.find(name);
  return value != nullptr && value->is_string() ? &value->as_string() : nullptr;
}

/// The type of a part, or empty.
std::string_view type_of(const Json& part) {
  const std::string* type = text_in(part, "type");
  return type != nullptr ? std::string_view(*type) : std::string_view();
}

bool is_image(const Json& part) {
  return type_of(part) == "image_url" || type_of(part) == "input_image";
}

/// The lists of parts of all messages.
std::vector<Json::Array*> contents_of(Json& chat) {
  std::vector<Json::Array*> contents;
  Json* messages = chat.find("messages");
  if (messages == nullptr || !messages->is_array()) return contents;
  for (Json& message : messages->as_array()) {
    Json* content = message.find("content");
    if (content != nullptr && content->is_array()) contents.push_back(&content->as_array());
  }
  return contents;
}

std::optional<ImageDetail> detail_of(const Json* value) {
  if (value == nullptr || value->is_null()) return ImageDetail::full;
  if (!value->is_string()) return std::nullopt;
  const std::string& word = value->as_string();
  if (word == "low") return ImageDetail::low;
  if (word == "auto" || word == "high" || word == "original") return ImageDetail::full;
  return std::nullopt;
}

/// Takes one image out of its part. In a chat url and detail are members of image_url, in a
/// response of the part itself; either form is taken in either.
std::variant<SentImage, ApiError> take_image(Json& part, size_t index) {
  Json* holder = part.find("image_url");
  const bool nested = holder != nullptr && holder->is_object();
  Json* url = nested ? holder->find("url") : holder;
  if (url == nullptr || !url->is_string())
    return image_error({.what = image_name(index),
                        .expected = "\"image_url\": {\"url\": \"data:...\"}",
                        .found = part.find("file_id") != nullptr ? "a file_id" : "no url",
                        .advice = "files are not stored here; send the image itself"});
  const Json* said =
      nested && holder->find("detail") != nullptr ? holder->find("detail") : part.find("detail");
  const auto detail = detail_of(said);
  if (!detail)
    return image_error({.what = concat("the detail of ", image_name(index)),
                        .expected = "low, high or auto",
                        .found = shown(*said)});
  SentImage image{.url = url->as_string(), .detail = *detail};
  Json word = json_object({{"type", Json("image")}});
  if (const Json* mark = part.find("cache_control")) word.set("cache_control", *mark);
  part = std::move(word);
  return image;
}

}  // namespace

std::string image_name(size_t index) { return concat("image ", index + 1); }

ApiError image_error(const ErrorParts& parts) { return ApiError::field("messages", parts); }

std::variant<std::vector<SentImage>, ApiError> take_images(Json& chat, size_t images_max) {
  std::vector<Json*> parts;
  for (Json::Array* content : contents_of(chat))
    for (Json& part : *content) {
      if (is_image(part)) parts.push_back(&part);
      // Templates would take such a part for an image that came with the request.
      if (type_of(part) == "image" || type_of(part) == "video")
        return image_error(
            {.what = concat("a part of type \"", type_of(part), "\""),
             .expected = "{\"type\": \"image_url\", \"image_url\": {\"url\": ...}}"});
    }
  if (parts.size() > images_max)
    return image_error({.what = "images of a request",
                        .expected = concat("at most ", images_max),
                        .found = concat(parts.size()),
                        .advice = "send fewer, or raise --limit-mm-per-prompt"});
  std::vector<SentImage> images;
  for (Json* part : parts) {
    auto taken = take_image(*part, images.size());
    if (auto* error = std::get_if<ApiError>(&taken)) return std::move(*error);
    images.push_back(std::move(std::get<SentImage>(taken)));
  }
  return images;
}

ImagePlace place_of_image(std::string_view url) {
  if (is_data_url(url)) return ImagePlace::inside;
  if (begins_with(url, "http://") || begins_with(url, "https://")) return ImagePlace::remote;
  return ImagePlace::other;
}

}  // namespace nibble
