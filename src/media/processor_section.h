// Reading the configurations of image and video processors: settings that both have, errors that
// name the file and the key.
#pragma once

#include <array>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "media/image_processor.h"

namespace nibble {

/// One object of a configuration. A key that is null counts as absent, as in transformers.
class ProcessorSection {
 public:
  ProcessorSection(const Json& json, std::string source)
      : json_(json), source_(std::move(source)) {}

  const Json* find(std::string_view key) const;
  Result<void> read_integer(std::string_view key, int64_t min, int64_t max, int64_t& out) const;
  Result<void> read_integer(std::string_view key, int64_t min, int64_t max, int& out) const;
  /// A number above 0, at most `max`.
  Result<void> read_positive(std::string_view key, double max, double& out) const;
  /// True, false, or nothing at all; what is not a boolean is an error.
  Result<std::optional<bool>> flag(std::string_view key) const;
  /// An error unless `key`, if it is there, is one of these names.
  Result<void> check_class(std::string_view key,
                           std::initializer_list<std::string_view> names) const;
  /// Sizes of patches, areas, rescaling and normalisation; `processor` has the defaults.
  Result<void> read_common(ImageProcessor& processor) const;
  /// An error unless one window of patches and the least area fit into the largest area.
  Result<void> check_areas(const ImageProcessor& processor) const;

 private:
  Error wrong(std::string_view key, std::string_view expected) const;
  Result<void> must_equal(std::string_view key, const Json& only) const;
  Result<void> read_channels(std::string_view key, double least, std::array<double, 3>& out) const;
  Result<void> read_size(ImageProcessor& processor) const;

  const Json& json_;
  std::string source_;
};

struct ProcessorConfig {
  Json json;
  std::string source;  // the file's name
};

/// The member `nested` of a folder's processor_config.json if it is there, else `file`: the order
/// of transformers. Empty if there is neither.
Result<std::optional<ProcessorConfig>> find_processor_config(const std::string& folder,
                                                             std::string_view nested,
                                                             const char* file);

inline constexpr int64_t kAreaMax = int64_t{1} << 31;  // pixels; of videos in all frames

}  // namespace nibble
