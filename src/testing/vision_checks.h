// The checks of a vision tower that every backend passes, against what transformers computes
// (tools/oracle/vision_golden.py): rows of the tower, logits of prompts with images and videos, and
// the same bits in every cut.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "testing/golden.h"
#include "testing/test_session.h"

namespace nibble {

/// A prompt with media, and the logits of its last rows.
struct VisionPrompt {
  std::vector<int32_t> ids;
  std::vector<int32_t> places;  // row of each id in the media rows; -1: text
  std::vector<std::array<int32_t, 3>> positions;
  std::vector<float> logits;  // [rows, vocab_rows]
};

class VisionChecks {
 public:
  enum class Drafting : uint8_t { off, on };
  /// `name`: "tiny" or "pebble", which has a layer that drafts. `error_max`: bar on relative_error
  /// of rows and of logits.
  VisionChecks(const std::string& name, const BackendFactory& factory,
               const BackendOptions& options, double error_max, Drafting drafting = Drafting::off);

  /// Rows of all media, each frame alone and all together.
  void expect_rows();
  /// Rows of pieces of any size, alone or beside other frames, have the bits of whole ones; and
  /// those of another backend.
  void expect_same_bits(const BackendFactory& factory, const std::vector<BackendOptions>& others);
  /// Logits of the prompts, prefilled in chunks of `piece` tokens (0: whole).
  void expect_logits(int piece);
  /// The logits of drafts after the first prompt are near those of another factory's backend, and
  /// depend on what its media are.
  void expect_drafts_like(const BackendFactory& factory);
  /// A level that is not a number of the table's makes rows that are not finite, and no others.
  void expect_not_finite_rows_to_be_seen();
  /// Rows that were moved to host memory and back have their bits again.
  void expect_rows_to_come_back_from_host();
  void report() const;

 private:
  struct Medium {
    MediaPatches patches;
    std::vector<std::vector<int32_t>> places;  // places of each frame
  };
  void read_prompt(const Json& json);
  Medium& add_medium(const Json& json);
  std::vector<VisionFrame> frames() const;
  TestSession session(Backend& backend, int64_t vision_rows) const;
  /// All frames through the tower; `work` of each step. The rows of all media, in order.
  std::vector<float> encode(Backend& backend, const std::vector<VisionFrame>& frames, double work,
                            int64_t vision_rows) const;
  std::vector<float> read_rows(Backend& backend) const;
  enum class Rows : uint8_t { of_media, of_tokens };
  /// Logits of the second draft after the first prompt, prefilled in chunks of 64.
  std::vector<float> draft_logits(Backend& backend, Rows rows) const;
  void expect_near(std::span<const float> found, std::span<const float> expected,
                   const std::string& what);
  int64_t largest_frame() const;
  int64_t all_frames() const;

  std::unique_ptr<Checkpoint> checkpoint_;
  ModelConfig config_;
  Weights weights_;
  std::unique_ptr<Backend> backend_;
  std::vector<std::unique_ptr<Medium>> media_;
  std::vector<VisionPrompt> prompts_;
  std::vector<float> rows_;
  int32_t rows_used_ = 0;
  BackendOptions options_;
  double error_max_;
  double error_seen_ = 0.0;
};

}  // namespace nibble
