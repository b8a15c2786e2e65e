// Images for given token ids: prepared as a server does, put where ids stand for them.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/options/image_options.h"
#include "eval/teacher_forced.h"

namespace nibble {

/// Puts images, in their order, where sequences of ids have adjacent image tokens: one token, which
/// becomes as many as the image has rows, or as many already. The images of each sequence. Errors:
/// invalid_argument where there are not as many places as images, or another number of tokens in
/// one.
Result<std::vector<std::vector<PlacedImage>>> place_in_ids(
    const std::vector<std::shared_ptr<const MediaPatches>>& images, const VisionConfig& vision,
    std::vector<std::vector<int32_t>>& sequences);

/// The same of images as data: URLs, within the limits of the flags. Errors: unsupported where the
/// model in `folder` takes none; those of make_image_intake, ImageIntake and place_in_ids.
Result<std::vector<std::vector<PlacedImage>>> images_of_ids(
    const std::vector<std::string>& urls, const ImageFlags& flags, const ModelConfig& config,
    const std::filesystem::path& folder, std::vector<std::vector<int32_t>>& sequences);

}  // namespace nibble
