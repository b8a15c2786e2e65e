// ImageFetcher: images from the hosts that this server may ask. It connects to the address that was
// checked, follows redirects by checking each anew, and hands nothing of a client on. Blocks: not
// where others wait.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "server/images/image_address.h"

namespace nibble {

struct ImageFetcherOptions {
  ImageHosts hosts;
  std::chrono::milliseconds time_max{10'000};  // for the images of a request together
  int redirects_max = 3;                       // redirects of one image
  /// The numeric addresses of a host; empty: the system's resolver. Asked once for each connection,
  /// on a thread of its own, which goes on alone where the time is over.
  std::function<Result<std::vector<std::string>>(const std::string& host)> resolve = {};
  /// True for an address that may be connected to; empty: is_public_address.
  std::function<bool(std::string_view numeric)> may_connect = {};
  std::string ca_file = {};  // certificates that hosts are trusted by; empty: the system's
};

class ImageFetcher {
 public:
  using Clock = std::chrono::steady_clock;
  explicit ImageFetcher(ImageFetcherOptions options);

  Clock::time_point deadline() const { return Clock::now() + options_.time_max; }

  /// The body of a 200. Errors: invalid_argument, for addresses that are not allowed and hosts that
  /// do not answer so, with more than `bytes_max`, or in time.
  Result<std::string> fetch(const std::string& url, size_t bytes_max,
                            Clock::time_point deadline) const;

 private:
  Result<std::string> address_for(const ImageAddress& address, Clock::time_point deadline) const;

  ImageFetcherOptions options_;
};

}  // namespace nibble
