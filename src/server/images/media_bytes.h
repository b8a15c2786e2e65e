// The encoded bytes of an image or a video, from where a request says they are.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/images/image_fetcher.h"

namespace nibble {

/// The bytes of a data URL, or of an address that `fetcher` fetches; without one, addresses are
/// refused. `example`: what an error shows as expected. Errors: those of parse_data_url and of
/// ImageFetcher; invalid_argument for other URLs.
Result<std::vector<std::byte>> media_bytes(const std::string& url, size_t bytes_max,
                                           const ImageFetcher* fetcher,
                                           ImageFetcher::Clock::time_point deadline,
                                           std::string_view example);

}  // namespace nibble
