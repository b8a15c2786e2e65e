// Images as clients send them: taken out of a chat request's messages before anything else is read,
// so that their bytes are neither copied nor shown nor logged. No pixels are seen here.
#pragma once

#include <cstdint>
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

/// The name of image `index` in messages: "image 1" for 0. They are counted over the conversation.
std::string image_name(size_t index);

/// An error about the images of a chat, as a client gets it.
ApiError image_error(const ErrorParts& parts);

/// Takes the images out of `chat`, a body in the fields of /v1/chat/completions. A part of the type
/// image_url or input_image becomes {"type": "image"}, a word of the chat templates, with its
/// cache_control if there is one. A body without messages, or with others than lists of objects, is
/// left for its reader to refuse. Errors: more than `images_max`, a part without an image, a part
/// that is such a word already, an unknown `detail`.
std::variant<std::vector<SentImage>, ApiError> take_images(Json& chat, size_t images_max);

/// The way in which an image's URL says where its bytes are.
enum class ImagePlace : uint8_t { inside, remote, other };
ImagePlace place_of_image(std::string_view url);

}  // namespace nibble
