// Tells containers of videos apart by their first bytes, never by a declared type or a file name.
// Only containers that hold their own data are taken: no playlists, no lists of files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"

namespace nibble {

enum class VideoFormat : uint8_t { mov, matroska, avi, gif };

/// ffmpeg's name of the demuxer: "mov" (also MP4), "matroska" (also WebM), "avi", "gif".
const char* video_demuxer(VideoFormat format);

/// Errors: unsupported for everything else, naming what was found if it is known (a playlist, a
/// list of files, an image...) and listing what is taken; invalid_argument for no bytes.
Result<VideoFormat> sniff_video_format(std::span<const std::byte> bytes);

}  // namespace nibble
