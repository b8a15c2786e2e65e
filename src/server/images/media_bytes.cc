// Nothing of a URL is repeated in an error.
#include "server/images/media_bytes.h"

#include <span>

#include "media/data_url.h"
#include "server/images/sent_images.h"

namespace nibble {

Result<std::vector<std::byte>> media_bytes(const std::string& url, size_t bytes_max,
                                           const ImageFetcher* fetcher,
                                           ImageFetcher::Clock::time_point deadline,
                                           std::string_view example) {
  const ImagePlace place = place_of_image(url);
  if (place == ImagePlace::inside) return parse_data_url(url, bytes_max);
  if (place == ImagePlace::other || fetcher == nullptr)
    return make_error(
        ErrorCode::invalid_argument,
        {.what = "its url",
         .expected = example,
         .found = place == ImagePlace::remote ? "an address, and this server fetches nothing"
                                              : "another form",
         .advice = "send the file itself, or start the server with --allowed-media-domains"});
  const std::string body = TRY(fetcher->fetch(url, bytes_max, deadline));
  const auto bytes = std::as_bytes(std::span(body));
  return std::vector<std::byte>(bytes.begin(), bytes.end());
}

}  // namespace nibble
