// Base64 in a data: URL.
#include "cli/chat/image_file.h"

#include <sstream>

#include "base/file.h"
#include "hub/base64.h"

namespace nibble {

Result<std::string> image_url_of(const std::string& path, uint64_t bytes_max) {
  return concat("data:;base64,", base64(TRY(read_text_file(path, bytes_max))));
}

Result<std::vector<std::string>> image_urls_of(const std::string& paths, uint64_t bytes_max) {
  std::vector<std::string> urls;
  std::istringstream lines(paths);
  for (std::string path; std::getline(lines, path);)
    urls.push_back(TRY(image_url_of(path, bytes_max)));
  return urls;
}

Json user_content(std::string_view text, const std::vector<std::string>& image_urls,
                  const std::vector<std::string>& video_urls) {
  if (image_urls.empty() && video_urls.empty()) return Json(text);
  Json::Array parts;
  const auto add = [&parts](const char* type, const std::string& url) {
    parts.push_back(json_object({{"type", Json(type)}, {type, json_object({{"url", Json(url)}})}}));
  };
  for (const std::string& url : image_urls) add("image_url", url);
  for (const std::string& url : video_urls) add("video_url", url);
  parts.push_back(json_object({{"type", Json("text")}, {"text", Json(text)}}));
  return Json(std::move(parts));
}

}  // namespace nibble
