// Media in the prompts of the simulation, and the values that the fake model then sees of every
// token.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "engine/sequence.h"
#include "engine/testing/fake_vision.h"

namespace nibble {

/// Puts one to three of a few small images and videos somewhere into the prompt, if it has room.
/// One of them has numbers that are not finite.
void add_random_media(SequenceRequest& request, std::mt19937_64& random);

/// A request without its constraint.
SequenceRequest copy_of(const SequenceRequest& request);

/// The values of the rows of a request, as FakeBackend has them.
class RequestValues {
 public:
  RequestValues() = default;
  explicit RequestValues(const SequenceRequest& request);
  uint64_t prompt(size_t index) const { return prompt_[index]; }
  /// Generated token `index`.
  uint64_t generated(int32_t token, size_t index) const;
  /// The same for the entries of the layer that drafts.
  uint64_t prompt_entry(size_t index) const { return prompt_entries_[index]; }
  uint64_t generated_entry(int32_t token, size_t index) const;

 private:
  int32_t prompt_size() const { return static_cast<int32_t>(prompt_.size()); }
  std::vector<uint64_t> prompt_;
  std::vector<uint64_t> prompt_entries_;
  std::array<int32_t, 3> last_position_ = {};  // last position of the prompt
  int32_t next_position_ = 0;
};

/// The salts whose sequences have read each medium.
class MediaReaders {
 public:
  /// Adds a sequence that has read its media. Returns false if one of them was encoded less often
  /// than salts have read it: a tenant could tell from the time what others have sent.
  bool add(const SequenceRequest& request, const FakeVision& vision);
  /// Returns how many salts have read a medium that another one had read before.
  int64_t apart() const { return apart_; }

 private:
  std::map<std::array<uint64_t, 2>, std::set<uint64_t>> salts_;  // by digest
  int64_t apart_ = 0;
};

}  // namespace nibble
