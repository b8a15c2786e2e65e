// Parts under the names of OpenAI's chats and responses; Anthropic's blocks come translated.
#include "server/images/sent_images.h"

#include <algorithm>
#include <optional>

#include "media/data_url.h"
#include "media/processor_request.h"

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

bool is_video(const Json& part) {
  return type_of(part) == "video_url" ||
         (type_of(part) == "video" && part.find("video") != nullptr);
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

/// The URL in a member that is one, or an object that has one; with its detail, perhaps.
Json* url_in(Json& part, std::string_view member) {
  Json* holder = part.find(member);
  return holder != nullptr && holder->is_object() ? holder->find("url") : holder;
}

/// Puts the word by which a template knows the part in the place of its bytes.
void leave_word(Json& part, std::string_view name) {
  Json word = json_object({{"type", Json(name)}});
  if (const Json* mark = part.find("cache_control")) word.set("cache_control", *mark);
  part = std::move(word);
}

/// Takes one image out of its part. In a chat url and detail are members of image_url, in a
/// response of the part itself; either form is taken in either.
std::variant<SentImage, ApiError> take_image(Json& part, size_t index) {
  const Json* holder = part.find("image_url");
  const bool nested = holder != nullptr && holder->is_object();
  const Json* url = url_in(part, "image_url");
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
  leave_word(part, "image");
  return image;
}

ApiError too_many(std::string_view what, size_t most, size_t found, std::string_view flag) {
  return image_error({.what = what,
                      .expected = concat("at most ", most),
                      .found = concat(found),
                      .advice = concat("send fewer, or raise --", flag)});
}

/// The files of "data:video/jpeg;base64,FILE,FILE..." as URLs; nothing: it is another URL.
std::variant<std::vector<std::string>, ApiError> frames_in(std::string_view url,
                                                           const std::string& name, size_t most) {
  constexpr std::string_view kHead = "data:video/jpeg;base64,";
  std::vector<std::string> frames;
  if (!begins_with(url, kHead)) return frames;
  const auto commas = static_cast<size_t>(std::ranges::count(url, ','));
  if (commas > most) return too_many(concat("frames of ", name), most, commas, "max-video-frames");
  const std::string_view head = url.substr(0, kHead.size() - 1);  // each frame has a copy
  for (size_t at = head.size(); at < url.size();) {
    const size_t end = std::min(url.find(',', at + 1), url.size());
    frames.push_back(concat(head, url.substr(at, end - at)));
    at = end;
  }
  return frames;
}

/// Takes one video out of its part.
std::variant<SentVideo, ApiError> take_video(Json& part, size_t index, const MediaMost& most) {
  const std::string name = video_name(index);
  SentVideo video;
  const Json* holder =
      part.find("video_url") != nullptr ? url_in(part, "video_url") : url_in(part, "video");
  const bool list = holder != nullptr && holder->is_array() && !holder->as_array().empty();
  const auto is_text = [](const Json& frame) { return frame.is_string(); };
  if (list && std::ranges::all_of(holder->as_array(), is_text)) {
    if (const size_t found = holder->as_array().size(); found > most.frames)
      return too_many(concat("frames of ", name), most.frames, found, "max-video-frames");
    for (const Json& frame : holder->as_array()) video.frames.push_back(frame.as_string());
  } else if (holder != nullptr && holder->is_string()) {
    auto frames = frames_in(holder->as_string(), name, most.frames);
    if (auto* error = std::get_if<ApiError>(&frames)) return std::move(*error);
    video.frames = std::move(std::get<std::vector<std::string>>(frames));
    if (video.frames.empty()) video.url = holder->as_string();
  } else {
    return image_error({.what = name,
                        .expected = "\"video_url\": {\"url\": \"data:...\"}, or \"video\": a "
                                    "list of the URLs of its frames",
                        .found = holder != nullptr ? "another form" : "no url"});
  }
  if (const Json* fps = part.find("fps"); fps != nullptr && !fps->is_null()) {
    video.fps = frame_rate(*fps);
    if (!video.fps)
      return image_error(
          {.what = concat("the fps of ", name),
           .expected = concat("a number from ", kFrameRateMin, " to ", kFrameRateMax),
           .found = shown(*fps)});
  }
  leave_word(part, "video");
  return video;
}

}  // namespace

std::string image_name(size_t index) { return concat("image ", index + 1); }
std::string video_name(size_t index) { return concat("video ", index + 1); }

ApiError image_error(const ErrorParts& parts) { return ApiError::field("messages", parts); }

std::variant<SentMedia, ApiError> take_media(Json& chat, const MediaMost& most) {
  std::vector<Json*> images, videos;
  for (Json::Array* content : contents_of(chat))
    for (Json& part : *content) {
      if (is_image(part))
        images.push_back(&part);
      else if (is_video(part))
        videos.push_back(&part);
      // Templates would take such a part for an image or a video that came with the request.
      else if (type_of(part) == "image" || type_of(part) == "video")
        return image_error({.what = concat("a part of type \"", type_of(part), "\""),
                            .expected = concat("{\"type\": \"", type_of(part), "_url\", \"",
                                               type_of(part), "_url\": {\"url\": ...}}")});
    }
  if (images.size() > most.images)
    return too_many("images of a request", most.images, images.size(), "limit-mm-per-prompt");
  if (videos.size() > most.videos)
    return too_many("videos of a request", most.videos, videos.size(), "limit-mm-per-prompt");
  SentMedia media;
  for (Json* part : images) {
    auto taken = take_image(*part, media.images.size());
    if (auto* error = std::get_if<ApiError>(&taken)) return std::move(*error);
    media.images.push_back(std::move(std::get<SentImage>(taken)));
  }
  for (Json* part : videos) {
    auto taken = take_video(*part, media.videos.size(), most);
    if (auto* error = std::get_if<ApiError>(&taken)) return std::move(*error);
    media.videos.push_back(std::move(std::get<SentVideo>(taken)));
  }
  return media;
}

ImagePlace place_of_image(std::string_view url) {
  if (is_data_url(url)) return ImagePlace::inside;
  if (begins_with(url, "http://") || begins_with(url, "https://")) return ImagePlace::remote;
  return ImagePlace::other;
}

}  // namespace nibble
