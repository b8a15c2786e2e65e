// Serves tools/oracle/media_test.py and bench/media.py: a JSON object a line of standard input, an
// answer as a JSON line on standard output, its "bytes" of data behind it.
//   {"do": "decode", "path": P}            RGB
//   {"do": "patches", "path": P, "config": {...}}                    F32 rows, grid
//   {"do": "size", "path": P, "config": {...}}                       size, grid
//   {"do": "video", "path": P, "width": W, "height": H, "config": {...}}
//                 raw frames in P, one after another: F32 rows, grid
//   {"do": "sampling", "frames": N, "fps": F, "width": W, "height": H, "config": {...}}
//                 indices, times, grid
//   {"do": "time", "path": P, "config": {...}, "rounds": N}          best milliseconds of each step
#include <algorithm>
#include <ctime>
#include <iostream>

#include "base/file.h"
#include "media/image_patches.h"

namespace nibble {
namespace {

struct Answer {
  Json head = json_object({});
  std::string data;
};

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

Result<std::string> file_of(const Json& job) {
  return read_text_file(job.find("path")->as_string(), 256 << 20);
}

Result<ImageProcessor> processor_of(const Json& job) {
  return parse_image_processor(*job.find("config"), "config");
}

void put_grid(const ImageGrid& grid, Json& head) {
  head.set("grid", Json(Json::Array{grid.t, grid.h, grid.w}));
}

template <typename T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

Result<Answer> decode(const Json& job) {
  const std::string file = TRY(file_of(job));
  const RgbImage image = TRY(decode_image(bytes_of(file), ImageLimits{}));
  Answer answer;
  answer.head = json_object({{"width", image.width}, {"height", image.height}});
  answer.data = raw(image.pixels);
  return answer;
}

Result<Answer> size(const Json& job) {
  const std::string file = TRY(file_of(job));
  const ImageSize found = TRY(read_image_size(bytes_of(file), ImageLimits{}));
  Answer answer;
  answer.head = json_object({{"width", found.width}, {"height", found.height}});
  const ImageProcessor processor = TRY(processor_of(job));
  put_grid(TRY(grid_of(found, processor)), answer.head);
  return answer;
}

/// Appends pixel_values: [grid.patches(), 3, temporal, patch, patch].
void append_rows(const ImagePatches& patches, std::vector<float>& rows) {
  const size_t begin = rows.size();
  rows.resize(begin + patches.levels.size());
  const size_t plane = size_t{1} * patches.temporal * patches.patch * patches.patch;
  for (size_t at = 0; at < patches.levels.size(); at += 3 * plane)
    for (size_t channel = 0; channel < 3; ++channel)
      for (size_t i = 0; i < plane; ++i)
        rows[begin + at + channel * plane + i] =
            patches.values[channel][patches.levels[at + channel * plane + i]];
}

Result<Answer> patches(const Json& job) {
  const std::string file = TRY(file_of(job));
  const RgbImage image = TRY(decode_image(bytes_of(file), ImageLimits{}));
  const ImageProcessor processor = TRY(processor_of(job));
  const ImagePatches found = TRY(prepare_image(image, processor));
  std::vector<float> rows;
  append_rows(found, rows);
  Answer answer;
  put_grid(found.grid, answer.head);
  answer.data = raw(rows);
  return answer;
}

Result<Answer> video(const Json& job) {
  const std::string file = TRY(file_of(job));
  const int width = static_cast<int>(job.find("width")->as_int());
  const int height = static_cast<int>(job.find("height")->as_int());
  std::vector<RgbImage> frames;
  const size_t bytes = size_t{3} * width * height;
  for (size_t at = 0; at + bytes <= file.size(); at += bytes) {
    const auto* from = reinterpret_cast<const uint8_t*>(file.data()) + at;
    frames.push_back({width, height, {from, from + bytes}});
  }
  const VideoProcessor processor = TRY(parse_video_processor(*job.find("config"), "config"));
  const std::vector<ImagePatches> found = TRY(prepare_video(frames, processor));
  std::vector<float> rows;
  for (const ImagePatches& each : found) append_rows(each, rows);
  ImageGrid grid = found.front().grid;
  grid.t = static_cast<int>(found.size());
  Answer answer;
  put_grid(grid, answer.head);
  answer.data = raw(rows);
  return answer;
}

Result<Answer> sampling(const Json& job) {
  const VideoProcessor processor = TRY(parse_video_processor(*job.find("config"), "config"));
  const double fps = job.find("fps")->as_double();
  const auto frames = TRY(sampled_frames(job.find("frames")->as_int(), fps, processor));
  const ImageSize size{static_cast<int>(job.find("width")->as_int()),
                       static_cast<int>(job.find("height")->as_int())};
  Json::Array indices, times;
  for (const int64_t frame : frames) indices.push_back(frame);
  for (const double time : frame_times(frames, fps, processor.frame.temporal)) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f", time);
    times.push_back(text);
  }
  Answer answer;
  answer.head = json_object({{"indices", Json(indices)}, {"times", Json(times)}});
  put_grid(TRY(video_grid(size, std::ssize(frames), processor)), answer.head);
  return answer;
}

double processor_ms() { return 1000.0 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

/// Decoding; resizing, cutting and hashing; those and the F32 rows. Processor time.
Result<Answer> time_steps(const Json& job) {
  const std::string file = TRY(file_of(job));
  const ImageProcessor processor = TRY(processor_of(job));
  double decoding = 1e9, preparing = 1e9, rows_too = 1e9;
  std::vector<float> rows;
  for (int64_t round = 0; round < job.find("rounds")->as_int(); ++round) {
    const double begin = processor_ms();
    const RgbImage image = TRY(decode_image(bytes_of(file), ImageLimits{}));
    const double decoded = processor_ms();
    const ImagePatches found = TRY(prepare_image(image, processor));
    const double prepared = processor_ms();
    rows.clear();
    append_rows(found, rows);
    const double written = processor_ms();
    decoding = std::min(decoding, decoded - begin);
    preparing = std::min(preparing, prepared - decoded);
    rows_too = std::min(rows_too, written - decoded);
  }
  Answer answer;
  answer.head = json_object(
      {{"decode_ms", decoding}, {"prepare_ms", preparing}, {"prepare_and_rows_ms", rows_too}});
  return answer;
}

Result<Answer> answer_to(const std::string& line) {
  const Json job = TRY(parse_json(line, "job"));
  const std::string& work = job.find("do")->as_string();
  if (work == "decode") return decode(job);
  if (work == "size") return size(job);
  if (work == "patches") return patches(job);
  if (work == "video") return video(job);
  if (work == "sampling") return sampling(job);
  CHECK(work == "time", work);
  return time_steps(job);
}

void serve() {
  std::string line;
  while (std::getline(std::cin, line)) {
    Result<Answer> answer = answer_to(line);
    Json head = answer.ok() ? answer.value().head
                            : json_object({{"error", answer.error().message},
                                           {"code", static_cast<int>(answer.error().code)}});
    const std::string data = answer.ok() ? answer.value().data : std::string();
    head.set("bytes", static_cast<int64_t>(data.size()));
    const std::string text = head.dump() + '\n';
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fwrite(data.data(), 1, data.size(), stdout);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace nibble

int main() { nibble::serve(); }
