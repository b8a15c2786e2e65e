// Words to options.
#include "quantize/gradient/fisher_options.h"

#include <charconv>

#include "base/concat.h"

namespace nibble {

constexpr double kPlainShareMax = 1000;

Result<std::optional<FisherOptions>> parse_second_moments(std::string_view text) {
  if (text == "plain") return std::optional<FisherOptions>();
  FisherOptions options;
  if (text == "fisher") return std::optional(options);
  constexpr std::string_view kShare = "fisher:";
  if (text.starts_with(kShare)) {
    const std::string_view digits = text.substr(kShare.size());
    const char* end = digits.data() + digits.size();
    const auto [at, failure] = std::from_chars(digits.data(), end, options.plain_share);
    if (failure == std::errc() && at == end && options.plain_share >= 0 &&
        options.plain_share <= kPlainShareMax)
      return std::optional(options);
  }
  return make_error(ErrorCode::invalid_argument,
                    {.what = "second moments",
                     .expected = concat("plain, fisher, or fisher: and a share from 0 to ",
                                        kPlainShareMax, ", as in fisher:0.3"),
                     .found = text});
}

std::string second_moments_text(const FisherOptions& options) {
  return concat("fisher:", options.plain_share);
}

}  // namespace nibble
