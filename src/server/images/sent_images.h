// Images and videos as clients send them: taken out of a chat request's messages before anything
// else is read, so that their bytes are neither shown nor logged. No pixels are seen here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "server/http/api_error.h"

namespace nibble {

/// OpenAI's `detail`. full: "auto", "high" and "original", which this server does not tell apart.
enum class ImageDetail : uint8_t { full, low };

struct SentImage {
  std::string url;  // "data:image/png;base64,..." or an address
  ImageDetail detail = ImageDetail::full;
};

struct SentVideo {
  std::string url;                  // "data:video/mp4;base64,..." or an address; empty: see frames
  std::vector<std::string> frames;  // URLs of images, in order
  std::optional<double> fps;        // goes before what mm_processor_kwargs says
};

struct SentMedia {
  std::vector<SentImage> images;
  std::vector<SentVideo> videos;
  bool empty() const { return images.empty() && videos.empty(); }
};

/// The most of each in one request, and of frames in one list of them.
struct MediaMost {
  size_t images = 0;
  size_t videos = 0;
  size_t frames = 0;
};

/// The name of image `index` in messages: "image 1" for 0. They are counted over the conversation.
std::string image_name(size_t index);
std::string video_name(size_t index);

/// An error about the images or videos of a chat, as a client gets it.
ApiError image_error(const ErrorParts& parts);

/// Takes images and videos out of `chat`, a body in the fields of /v1/chat/completions. A part of
/// the type image_url or input_image becomes {"type": "image"}, one of video_url, or of video with
/// a member of that name, {"type": "video"}: words of the chat templates, with its cache_control if
/// there is one. A video is a URL or a list of the URLs of its frames; "data:video/jpeg;base64," is
/// such a list too, of JPEG files between commas, as vLLM has it. A body without messages, or with
/// others than lists of objects, is left for its reader to refuse.
/// Errors: more than `most`, a part without its image or video, a part that is such a word already,
/// an unknown `detail`, an `fps` that is no rate.
std::variant<SentMedia, ApiError> take_media(Json& chat, const MediaMost& most);

/// The way in which an image's URL says where its bytes are.
enum class ImagePlace : uint8_t { inside, remote, other };
ImagePlace place_of_image(std::string_view url);

}  // namespace nibble
