// Image and video files as parts of a chat request.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace nibble {

/// An image or video file as a data: URL, which says nothing of its format: the bytes do. Errors:
/// those of read_text_file; invalid_argument for more than `bytes_max`.
Result<std::string> image_url_of(const std::string& path, uint64_t bytes_max);

/// The files of an option that may stand often, a line each, likewise.
Result<std::vector<std::string>> image_urls_of(const std::string& paths, uint64_t bytes_max);

/// The content of a user's message: `text` alone, or parts, the images and then the videos before
/// it.
Json user_content(std::string_view text, const std::vector<std::string>& image_urls,
                  const std::vector<std::string>& video_urls = {});

}  // namespace nibble
