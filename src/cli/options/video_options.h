// The part of image_options.h that is about videos. Private to it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "cli/options/image_options.h"

namespace nibble {

/// An error unless the patches that the processor in `file` cuts are those that the tower reads.
Result<void> check_processor(const ImageProcessor& processor, const VisionConfig& vision,
                             std::string_view file);

/// The tokens of an area in pixels.
inline int64_t tokens_of(int64_t pixels, const ImageProcessor& processor) {
  return pixels / (int64_t{processor.factor()} * processor.factor());
}

/// Sets options.videos as the flags and the folder say, and the programs that decode them as they
/// are found in $PATH; `options` has the rest already. Errors: those of check_processor and
/// load_video_processor.
Result<void> take_videos(const ImageFlags& flags, const VisionConfig& vision,
                         const std::filesystem::path& folder, ImageIntakeOptions& options,
                         std::string& notice);

}  // namespace nibble
